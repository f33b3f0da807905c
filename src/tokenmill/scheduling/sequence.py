"""The scheduler's record of one sequence: its tokens, how many of them are in the KV cache, and where."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenmill.scheduling.batch_plan import History
from tokenmill.vocabulary.generation import GenerationRequest, SamplingParams


@dataclass(slots=True, eq=False)
class ScheduledSequence:
    """One sequence from `add` to its end. Owned and changed by the Scheduler and its PrefixCache alone.

    Attributes:
        sequence_id: given in order of arrival.
        request: what was asked for.
        max_output: tokens it may generate, from max_tokens and the context limit.
        arrival_s: when it came.
        key: order of service, smallest first: arrival moved by priority, then sequence_id.
        tokens: prompt and output so far.
        computed: leading tokens whose keys and values are in the cache.
        pages: page table; covers at least `computed` tokens.
        registered: leading pages that the prefix cache knows.
        cached_tokens: of the prompt, found in the prefix cache before the first token.
        started: it has been part of a step.
        cancelled: its client left while a step that contains it was running.
        due_s: a reply with a limited rate may have its next token from this time on.
        credit_s: engine time that a costly reply has saved up for its next token.
        passed_over: steps in a row that went without it for its cost.
    """

    sequence_id: int
    request: GenerationRequest
    max_output: int
    arrival_s: float
    key: tuple[float, int]
    tokens: list[int] = field(init=False)
    computed: int = 0
    pages: list[int] = field(default_factory=list)
    registered: int = 0
    cached_tokens: int = 0
    started: bool = False
    cancelled: bool = False
    due_s: float = 0.0
    credit_s: float = 0.0
    passed_over: int = 0

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt_tokens)

    @property
    def prompt_length(self) -> int:
        """Tokens that came with the request."""
        return len(self.request.prompt_tokens)

    @property
    def output_length(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.prompt_length

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next one can be drawn: 1 while decoding, more in a prefill."""
        return len(self.tokens) - self.computed

    @property
    def sampling(self) -> SamplingParams:
        """How its tokens are drawn."""
        return self.request.sampling

    def history(self) -> History | None:
        """What its penalties look at; None when no penalty is on, so that nothing is copied for it."""
        s = self.request.sampling
        if s.repetition_penalty == 1.0 and s.presence_penalty == 0.0 and s.frequency_penalty == 0.0:
            return None
        return History(self.tokens, self.prompt_length)
