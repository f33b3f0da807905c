"""Requests of the OpenAI API as pydantic models. With responses.py the only place that knows OpenAI's names.

Every field that OpenAI documents is either honoured, listed as harmless, or refused by name: nothing is ignored in
silence. Beyond OpenAI's fields there are top_k, min_p, repetition_penalty and ignore_eos.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from tokenmill.vocabulary.errors import RequestError
from tokenmill.vocabulary.generation import GenerationRequest, SamplingParams

MAX_CHOICES = 16  # sequences that one request may ask for: prompts times n
MAX_STOP_STRINGS = 16
MAX_MESSAGES = 4096
MAX_PARTS = 1024

_StopString = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
_TokenIdText = Annotated[str, StringConstraints(pattern=r"^\d{1,9}$")]
_Bias = Annotated[float, Field(ge=-100, le=100)]
_Texts = Annotated[list[str], Field(min_length=1, fail_fast=True)]
# Lists end at their first fault and at a length: a body of a million faults would hold up the event loop.
_TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, fail_fast=True)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StreamOptions(_Strict):
    """include_obfuscation is accepted and does nothing: no padding is ever sent."""

    include_usage: bool = False
    include_obfuscation: bool | None = None


class TextPart(_Strict):
    """One part of a message's content; only text is understood."""

    type: Literal["text"]
    text: str


class ChatMessage(_Strict):
    """One message. `developer` is treated as `system`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True)] | None = None
    name: str | None = None
    refusal: str | None = None

    @property
    def text(self) -> str:
        """The content as one string, its parts as lines."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class GenerationFields(_Strict):
    """What chat and text completions have in common."""

    # Field name -> values under which it means nothing, so that clients which always send it are served.
    unsupported: ClassVar[dict[str, tuple[object, ...]]] = {}

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None  # 0 and -1: off
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[_TokenIdText, _Bias] | None = None
    stop: _StopString | Annotated[list[_StopString], Field(max_length=MAX_STOP_STRINGS)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    ignore_eos: bool | None = None
    user: str | None = None

    @model_validator(mode="after")
    def _refuse_what_is_not_built(self) -> Self:
        for name, neutral in self.unsupported.items():
            value = getattr(self, name)
            if value not in neutral:
                raise RequestError(f"{name} is not supported by this server", parameter=name)
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options needs stream: true", parameter="stream_options")
        return self

    @property
    def wants_stream(self) -> bool:
        """Whether to answer with server-sent events."""
        return bool(self.stream)

    @property
    def wants_usage_frame(self) -> bool:
        """Whether a stream ends with a frame that holds the token counts."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """Stop strings, none of them empty."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def wanted_logprobs(self) -> int | None:
        """As in SamplingParams.logprobs."""
        raise NotImplementedError

    @property
    def token_limit(self) -> int | None:
        """Most tokens to generate; None: up to the context."""
        raise NotImplementedError

    def generation_requests(self, prompts: Sequence[Sequence[int]]) -> list[GenerationRequest]:
        """N sequences for each prompt, in the order of the answer. Those of one prompt differ in their seeds.

        Raises:
            RequestError: more than MAX_CHOICES.
        """
        each = self.n or 1
        if len(prompts) * each > MAX_CHOICES:
            raise RequestError(f"{len(prompts)} prompts times n={each} is more than {MAX_CHOICES}", parameter="n")
        sampling = self._sampling()
        return [
            GenerationRequest(
                prompt_tokens=tuple(prompt),
                sampling=replace(sampling, seed=(sampling.seed + index) % 2**64),
                max_tokens=self.token_limit,
                stop_strings=self.stop_strings,
                ignore_eos=bool(self.ignore_eos),
            )
            for prompt in prompts
            for index in range(each)
        ]

    def _sampling(self) -> SamplingParams:
        """Sampling parameters; a seed is drawn when none was given."""

        def value(given: float | None, default: float) -> float:
            return default if given is None else given

        return SamplingParams(
            temperature=value(self.temperature, 1.0),
            top_k=max(0, self.top_k or 0),
            top_p=value(self.top_p, 1.0),
            min_p=value(self.min_p, 0.0),
            repetition_penalty=value(self.repetition_penalty, 1.0),
            presence_penalty=value(self.presence_penalty, 0.0),
            frequency_penalty=value(self.frequency_penalty, 0.0),
            logit_bias={int(token): bias for token, bias in (self.logit_bias or {}).items()},
            seed=secrets.randbits(53) if self.seed is None else self.seed % 2**64,
            logprobs=self.wanted_logprobs,
        )


class ChatRequest(GenerationFields):
    """POST /v1/chat/completions."""

    unsupported: ClassVar[dict[str, tuple[object, ...]]] = {
        "audio": (None,),
        "function_call": (None, "none", "auto"),
        "functions": (None, []),
        "modalities": (None, ["text"]),
        "parallel_tool_calls": (None, True, False),
        "prediction": (None,),
        "reasoning_effort": (None, "none"),
        "response_format": (None, {"type": "text"}),
        "service_tier": (None, "auto", "default"),
        "tool_choice": (None, "none", "auto"),
        "tools": (None, []),
        "verbosity": (None, "medium"),
        "web_search_options": (None,),
    }

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    # Harmless: bookkeeping of OpenAI's own service.
    metadata: dict[str, Any] | None = None
    moderation: Any = None
    prompt_cache_key: str | None = None
    prompt_cache_options: Any = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    store: bool | None = None
    # Not built; see `unsupported`.
    audio: Any = None
    function_call: Any = None
    functions: Any = None
    modalities: Any = None
    parallel_tool_calls: Any = None
    prediction: Any = None
    reasoning_effort: Any = None
    response_format: Any = None
    service_tier: Any = None
    tool_choice: Any = None
    tools: Any = None
    verbosity: Any = None
    web_search_options: Any = None

    @model_validator(mode="after")
    def _check_logprobs(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise RequestError("top_logprobs needs logprobs: true", parameter="top_logprobs")
        return self

    @property
    def wanted_logprobs(self) -> int | None:
        """As in SamplingParams.logprobs."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def token_limit(self) -> int | None:
        """Most tokens to generate; None: up to the context."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def conversation(self) -> list[dict[str, str]]:
        """Messages as a chat template wants them."""
        return [
            {"role": "system" if m.role == "developer" else m.role, "content": m.text}
            | ({} if m.name is None else {"name": m.name})
            for m in self.messages
        ]


class CompletionRequest(GenerationFields):
    """POST /v1/completions."""

    unsupported: ClassVar[dict[str, tuple[object, ...]]] = {
        "best_of": (None, 1),
        "echo": (None, False),
        "suffix": (None, ""),
    }

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)]
        | _TokenIds
        | Annotated[list[_TokenIds], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)]
    )
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    best_of: Any = None
    echo: Any = None
    suffix: Any = None

    @property
    def wanted_logprobs(self) -> int | None:
        """As in SamplingParams.logprobs."""
        return self.logprobs

    @property
    def token_limit(self) -> int:
        """Most tokens to generate; OpenAI's default for text completions is 16."""
        return 16 if self.max_tokens is None else self.max_tokens

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, each a text or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        texts = [item for item in self.prompt if isinstance(item, str)]
        ids = [item for item in self.prompt if isinstance(item, int)]
        lists = [item for item in self.prompt if isinstance(item, list)]
        return [*texts, *lists, *([ids] if ids else [])]  # one of the three has everything


_Request = TypeVar("_Request", bound=GenerationFields)


def parse(kind: type[_Request], body: bytes) -> _Request:
    """Reads a request body.

    Raises:
        RequestError: not JSON, a field that is missing, unknown, of a wrong type or out of range; it names the field.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _as_request_error(error) from None


def _as_request_error(error: ValidationError) -> RequestError:
    """The first complaint, in the words of someone who wrote the request. Values are not repeated."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    unknown = [_path(d["loc"]) for d in details if d["type"] == "extra_forbidden"]
    if unknown:
        return RequestError(f"unknown field: {', '.join(unknown[:10])}"[:500], parameter=unknown[0][:100])
    # Where several types are allowed there is a complaint for each; the one about a value of a right type is of use.
    first = next((d for d in details if d["type"] not in _WRONG_TYPE), details[0])
    if first["type"] == "json_invalid":
        return RequestError(f"the body is not valid JSON: {first['msg'].removeprefix('Invalid JSON: ')}")
    field = _path(first["loc"])
    if first["type"] == "missing":
        return RequestError(f"the field {field} is missing", parameter=field)
    where = f"{field}: " if field else ""
    return RequestError(f"{where}{first['msg'][:1].lower()}{first['msg'][1:]}", parameter=field or None)


_WRONG_TYPE = ("string_type", "list_type", "int_type")


def _path(location: tuple[int | str, ...]) -> str:
    """The field as the client wrote it: up to where pydantic begins to name the types it tried."""
    parts = list(map(str, location))
    end = next((i for i, part in enumerate(parts) if "[" in part or part in ("str", "constrained-str")), len(parts))
    return ".".join(parts[:end])[:200]
