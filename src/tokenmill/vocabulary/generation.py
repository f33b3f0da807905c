"""What is asked of the engine and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"  # a stop token or a stop string
    LENGTH = "length"  # max_tokens or the context limit
    CANCELLED = "cancelled"  # the client left
    ERROR = "error"  # a non-finite value, or the engine failed
    SHUTDOWN = "shutdown"  # the engine was closed on purpose before the sequence had ended


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn. Defaults leave the distribution as the model gives it.

    temperature 0 is greedy. top_k 0, top_p 1 and min_p 0 are off. Penalties follow the usual definitions:
    repetition divides (positive logits) or multiplies (negative), frequency subtracts count * penalty, presence
    subtracts penalty once; repetition looks at prompt and output, the other two at the output.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0
    logprobs: int | None = None  # None: off; n >= 0: the chosen token's and the n largest


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate. Token ids in, token events out.

    Attributes:
        max_tokens: most tokens of output; None: up to the context limit.
        priority: higher is served first; waiting makes up for it, so that nothing starves.
        max_tokens_per_s: the reply comes no faster than this; None: as fast as it can.
        first_token_within_s: refused at once when its first token is predicted to come later; None: it waits.
        cache_scope: prompts share cached prefixes only within the same scope (a tenant, a key).
    """

    prompt_tokens: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int | None = None
    stop_strings: tuple[str, ...] = ()
    ignore_eos: bool = False
    request_id: str = ""
    priority: int = 0
    max_tokens_per_s: float | None = None
    first_token_within_s: float | None = None
    cache_scope: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probability of a token under the unmodified model distribution at its position."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One generated token, or (token_id None) the end of a sequence without one.

    time_s is the engine's monotonic clock when the step that made the token ended. cached_prompt_tokens is told with
    the first token: how many of the prompt were found in the prefix cache.
    """

    token_id: int | None
    time_s: float
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    error: str = ""
    cached_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request. Cached prompt tokens are part of prompt_tokens."""

    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int = 0
