"""What a scheduler may use, and what it says about itself."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.scheduling.batch_plan import PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """What the scheduler may use, and what it aims at.

    Attributes:
        context_length: most tokens of a sequence, prompt and output together.
        page_count: KV pages; they must hold one sequence of context_length.
        max_sequences: most sequences in one step.
        step_tokens: most tokens in one step; at least max_sequences + 1, so that decoding cannot starve a prefill.
        queue_limit: most sequences that wait beyond the max_sequences that may run.
        itl_target_s: how long a step with running streams may take; None: a few times what their rows alone take.
        kv_bytes_per_token: keys and values of one token, all layers; what a long context costs is counted with it.
        cached_pages: most pages kept for their contents alone; None: all that no sequence needs; 0: no prefix cache.
    """

    context_length: int
    page_count: int
    max_sequences: int = 16
    step_tokens: int = 256
    queue_limit: int = 256
    itl_target_s: float | None = None
    kv_bytes_per_token: int = 1
    cached_pages: int | None = None

    def __post_init__(self) -> None:
        if min(self.context_length - 1, self.page_count, self.max_sequences, self.queue_limit + 1) < 1:
            raise ValueError("context_length must be at least 2, queue_limit 0, and the other limits 1")
        if self.page_count * PAGE_TOKENS < self.context_length:
            raise ValueError(f"{self.page_count} KV pages cannot hold one sequence of {self.context_length} tokens")
        if self.step_tokens <= self.max_sequences:
            raise ValueError(f"step_tokens ({self.step_tokens}) must exceed max_sequences ({self.max_sequences})")
        if self.itl_target_s is not None and self.itl_target_s <= 0:
            raise ValueError(f"itl_target_s is {self.itl_target_s}; it must be positive")


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """Counts for metrics; preemptions, prompt_tokens and cached_prompt_tokens are totals since the start.

    Attributes:
        running: sequences that have a slot.
        waiting: sequences in the line.
        free_pages: pages that can be handed out, cached ones included.
        page_count: all pages.
        preemptions: how often a sequence lost its pages or its slot.
        cached_pages: of the free ones, those kept for their contents.
        prompt_tokens: of prompts whose first token has come.
        cached_prompt_tokens: of these, found in the prefix cache.
    """

    running: int
    waiting: int
    free_pages: int
    page_count: int
    preemptions: int
    cached_pages: int = 0
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
