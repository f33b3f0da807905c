"""Answers in the OpenAI API's shapes, as plain dicts. With protocol.py the only place that knows OpenAI's names."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Protocol

from tokenmill.engine.text_stream import TextDelta, TokenText
from tokenmill.vocabulary.generation import FinishReason, Usage

Json = dict[str, Any]


@dataclass(slots=True)
class Choice:
    """One finished sequence, its deltas joined."""

    text: str = ""
    tokens: list[TokenText] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    def add(self, delta: TextDelta) -> None:
        """Appends a piece."""
        self.text += delta.text
        self.tokens.extend(delta.tokens)
        self.finish_reason = delta.finish_reason


class Shape(Protocol):
    """How one kind of request is answered: whole, or frame by frame."""

    def first_frame(self, index: int) -> Json | None:
        """What a choice's stream begins with."""

    def frame(self, index: int, delta: TextDelta) -> Json:
        """One piece of a choice."""

    def last_frame(self, usage: Usage) -> Json | None:
        """The frame after all choices: the token counts, when they were asked for."""

    def whole(self, choices: list[Choice], usage: Usage) -> Json:
        """The answer of a request that does not stream."""


@dataclass(frozen=True, slots=True)
class _Head:
    """Fields that all frames of an answer share."""

    model: str
    with_logprobs: bool
    usage_frame: bool  # every frame then has a usage field, null but for the last
    id: str
    created: int

    def build(self, kind: str, choices: list[Json], usage: Json | None = None, *, streamed: bool) -> Json:
        body: Json = {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}
        if usage is not None or (streamed and self.usage_frame):
            body["usage"] = usage
        return body

    def last(self, kind: str, usage: Usage) -> Json | None:
        return self.build(kind, [], usage_body(usage), streamed=True) if self.usage_frame else None


def _head(prefix: str, model: str, *, with_logprobs: bool, usage_frame: bool) -> _Head:
    return _Head(model, with_logprobs, usage_frame, f"{prefix}-{uuid.uuid4().hex}", int(time.time()))


class ChatShape:
    """chat.completion and chat.completion.chunk."""

    def __init__(self, model: str, *, with_logprobs: bool, usage_frame: bool) -> None:
        self._head = _head("chatcmpl", model, with_logprobs=with_logprobs, usage_frame=usage_frame)

    def first_frame(self, index: int) -> Json | None:
        """The role comes first, alone, with empty content."""
        return self._chunk(index, {"role": "assistant", "content": ""}, None, None)

    def frame(self, index: int, delta: TextDelta) -> Json:
        """Content, and with the last piece the finish reason."""
        content = {"content": delta.text} if delta.text or delta.finish_reason is None else {}
        logprobs = self._logprobs(delta.tokens) if self._head.with_logprobs else None
        return self._chunk(index, content, logprobs, delta.finish_reason)

    def last_frame(self, usage: Usage) -> Json | None:
        """No choices, only the counts."""
        return self._head.last("chat.completion.chunk", usage)

    def whole(self, choices: list[Choice], usage: Usage) -> Json:
        """The message of each choice."""
        items: list[Json] = [
            {
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": self._logprobs(choice.tokens) if self._head.with_logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(choices)
        ]
        return self._head.build("chat.completion", items, usage_body(usage), streamed=False)

    def _chunk(self, index: int, delta: Json, logprobs: Json | None, reason: FinishReason | None) -> Json:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._head.build("chat.completion.chunk", [choice], streamed=True)

    def _logprobs(self, tokens: list[TokenText] | tuple[TokenText, ...]) -> Json:
        content = [_chat_token(t) | {"top_logprobs": [_chat_token(other) for other in t.top]} for t in tokens]
        return {"content": content, "refusal": None}


class CompletionShape:
    """text_completion, whole or streamed (both have the same object name)."""

    def __init__(self, model: str, *, with_logprobs: bool, usage_frame: bool) -> None:
        self._head = _head("cmpl", model, with_logprobs=with_logprobs, usage_frame=usage_frame)
        self._offsets: dict[int, int] = {}  # characters of each choice that have been sent

    def first_frame(self, index: int) -> Json | None:  # noqa: ARG002 - the shape has none
        """Text completions begin with text."""
        return None

    def frame(self, index: int, delta: TextDelta) -> Json:
        """A piece of text, and with the last one the finish reason."""
        item = self._choice(index, delta.text, delta.tokens, delta.finish_reason)
        return self._head.build("text_completion", [item], streamed=True)

    def last_frame(self, usage: Usage) -> Json | None:
        """No choices, only the counts."""
        return self._head.last("text_completion", usage)

    def whole(self, choices: list[Choice], usage: Usage) -> Json:
        """The text of each choice."""
        items = [self._choice(i, c.text, c.tokens, c.finish_reason) for i, c in enumerate(choices)]
        return self._head.build("text_completion", items, usage_body(usage), streamed=False)

    def _choice(
        self, index: int, text: str, tokens: list[TokenText] | tuple[TokenText, ...], reason: FinishReason | None
    ) -> Json:
        offset = self._offsets.get(index, 0)
        self._offsets[index] = offset + len(text)
        logprobs = _completion_logprobs(tokens, offset) if self._head.with_logprobs else None
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}


def usage_body(usage: Usage) -> Json:
    """The token counts."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_prompt_tokens},
    }


def error_body(message: str, kind: str, parameter: str | None = None, code: str | None = None) -> Json:
    """The error object, the same for bodies and for frames of a stream."""
    return {"error": {"message": message, "type": kind, "param": parameter, "code": code}}


def model_body(name: str, created: int, context_length: int) -> Json:
    """One entry of the list of models; max_model_len is what other servers call the context length."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "tokenmill",
        "max_model_len": context_length,
    }


def model_list_body(models: list[Json]) -> Json:
    """GET /v1/models."""
    return {"object": "list", "data": models}


def _chat_token(token: TokenText) -> Json:
    return {"token": _shown(token), "logprob": token.logprob, "bytes": list(token.data)}


def _completion_logprobs(tokens: list[TokenText] | tuple[TokenText, ...], offset: int) -> Json:
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(_shown(token))
    return {
        "tokens": [_shown(token) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{_shown(other): other.logprob for other in token.top} for token in tokens],
        "text_offset": offsets,
    }


def _shown(token: TokenText) -> str:
    """A token as text; bytes that are no whole character show as U+FFFD (chat answers carry the bytes beside it)."""
    return token.data.decode("utf-8", errors="replace")
