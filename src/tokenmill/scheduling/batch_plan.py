"""What one engine step computes and what came of it, as data: the scheduler writes the plan, a runner answers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokenmill.vocabulary.generation import SamplingParams, TokenLogprob

PAGE_TOKENS = 16  # keys in one KV page; kPageTokens of the native contract


@dataclass(frozen=True, slots=True)
class History:
    """What the penalties of one row look at: prompt and output so far, the tokens of this step included.

    `tokens` may be the scheduler's own growing list: read it during the step, do not keep it.
    """

    tokens: Sequence[int]
    prompt_length: int


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """One sequence's part of a step: a prefill chunk or (one token) a decode row.

    Attributes:
        sequence_id: unique for the engine's life.
        tokens: at least one; token i is stored at absolute position `position + i`.
        position: absolute position of the first token.
        pages: the page table; position t lies in pages[t // PAGE_TOKENS]. Covers every position up to the last token.
            Sequences may have pages in common that lie wholly before the position of each: those are read only.
        sampling: how to draw a token after the last one of `tokens`; None draws none (more of the prompt follows).
        history: only when `sampling` has a penalty switched on.
    """

    sequence_id: int
    tokens: Sequence[int]
    position: int
    pages: Sequence[int]
    sampling: SamplingParams | None = None
    history: History | None = None


@dataclass(frozen=True, slots=True)
class SequenceStart:
    """A sequence is computed for the first time in this step, `queue_s` seconds after it arrived."""

    sequence_id: int
    queue_s: float


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One ragged batch.

    Attributes:
        steps: the sequences' parts.
        zero_pages: handed out for the first time since they were freed: zero them first.
        predicted_s: what the scheduler expects the step to take; 0 when it does not say.
        starts: the sequences that begin with this step.
        deferred: sequences that could decode and are left out, for their rate or their cost.
    """

    steps: tuple[SequenceStep, ...]
    zero_pages: tuple[int, ...] = ()
    predicted_s: float = 0.0
    starts: tuple[SequenceStart, ...] = ()
    deferred: int = 0

    @property
    def token_count(self) -> int:
        """Rows of the batch."""
        return sum(len(step.tokens) for step in self.steps)


@dataclass(frozen=True, slots=True)
class SequenceResult:
    """What a step gave one sequence, in the order of BatchPlan.steps.

    Attributes:
        sequence_id: that of the SequenceStep.
        token_id: the token drawn; None when none was asked for or `error` is set.
        logprob: of the token drawn, when SamplingParams.logprobs is not None.
        top_logprobs: the n largest, largest first, when n > 0 were asked for.
        error: not empty when this sequence cannot go on (a non-finite value); the others are not affected.
    """

    sequence_id: int
    token_id: int | None = None
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class StepResults:
    """The answer to a BatchPlan: one result per step, and the wall seconds of the step by phase (for metrics)."""

    results: tuple[SequenceResult, ...]
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
