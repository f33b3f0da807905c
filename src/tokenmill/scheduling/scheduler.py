"""Continuous batching: decides before each step which sequences compute which tokens, and what a result means.

First come, first served. Each step takes one token of every sequence that is decoding and fills the rest of the
step's token budget with chunks of prompts, oldest first. When KV pages run out, the sequence that came last gives all
of its pages back and later computes them again (the numerics contract makes the recomputed values the same bits).
The oldest sequence can always push out all others and alone always fits, so every sequence ends.

Pure: no clock (the caller passes times in), no threads, no I/O. The caller serialises the calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tokenmill.scheduling.batch_plan import PAGE_TOKENS, BatchPlan, SequenceResult, SequenceStep, StepResults
from tokenmill.scheduling.page_ledger import PageLedger, pages_for
from tokenmill.scheduling.sequence import ScheduledSequence
from tokenmill.vocabulary.errors import ContextLengthError, OverloadedError, RequestError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, TokenEvent


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """What the scheduler may use.

    Attributes:
        context_length: most tokens of a sequence, prompt and output together.
        page_count: KV pages; they must hold one sequence of context_length.
        max_sequences: most sequences in one step.
        step_tokens: most tokens in one step; at least max_sequences + 1, so that decoding cannot starve a prefill.
        queue_limit: most sequences that wait beyond the max_sequences that may run.
    """

    context_length: int
    page_count: int
    max_sequences: int = 16
    step_tokens: int = 256
    queue_limit: int = 256

    def __post_init__(self) -> None:
        if min(self.context_length - 1, self.page_count, self.max_sequences, self.queue_limit + 1) < 1:
            raise ValueError("context_length must be at least 2, queue_limit 0, and the other limits 1")
        if self.page_count * PAGE_TOKENS < self.context_length:
            raise ValueError(f"{self.page_count} KV pages cannot hold one sequence of {self.context_length} tokens")
        if self.step_tokens <= self.max_sequences:
            raise ValueError(f"step_tokens ({self.step_tokens}) must exceed max_sequences ({self.max_sequences})")


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """Counts for metrics and for admission; preemptions is a total since the start."""

    running: int
    waiting: int
    free_pages: int
    page_count: int
    preemptions: int


@dataclass(frozen=True, slots=True)
class SequenceEvents:
    """What a step means for one sequence. The last event of a sequence has a finish_reason."""

    sequence_id: int
    events: tuple[TokenEvent, ...]


# Pages that a sequence is expected to grow by soon: 64 tokens, or less when it ends before.
_GROWTH_PAGES = 4


def _wanted_pages(sequence: ScheduledSequence) -> int:
    """Pages it needs beyond those it has, for the tokens it has and some growth."""
    # The last token of a sequence is never stored: nothing comes after it.
    most = pages_for(sequence.prompt_length + sequence.max_output - 1)
    return min(most, pages_for(len(sequence.tokens)) + _GROWTH_PAGES) - len(sequence.pages)


class Scheduler:
    """Owns the waiting line, the running sequences and the page ledger.

    Args:
        limits: see SchedulerLimits.
        stop_tokens: the tokens that end a sequence, unless its request ignores them.
    """

    def __init__(self, limits: SchedulerLimits, stop_tokens: AbstractSet[int] = frozenset()) -> None:
        self.limits = limits
        self._stop_tokens = frozenset(stop_tokens)
        self._ledger = PageLedger(limits.page_count)
        self._waiting: deque[ScheduledSequence] = deque()  # by sequence_id
        self._running: list[ScheduledSequence] = []  # by sequence_id; all are older than those that wait
        self._in_flight: BatchPlan | None = None
        self._next_id = 0
        self._preemptions = 0

    @property
    def state(self) -> SchedulerState:
        """A snapshot of the counts."""
        ledger = self._ledger
        return SchedulerState(
            len(self._running), len(self._waiting), ledger.free_count, ledger.page_count, self._preemptions
        )

    def add(self, request: GenerationRequest) -> int:
        """Puts a request at the end of the line and returns its sequence id.

        Raises:
            ContextLengthError: the prompt fills the context.
            RequestError: the prompt is empty, or max_tokens is below 1.
            OverloadedError: the running sequences and the waiting line are full.
        """
        context = self.limits.context_length
        prompt = len(request.prompt_tokens)
        if prompt == 0:
            raise RequestError("the prompt is empty; at least one token is needed", parameter="prompt")
        if prompt >= context:
            raise ContextLengthError(
                f"the prompt has {prompt} tokens, but the context holds {context} and needs room for at least one more",
                parameter="prompt",
                hint="shorten the prompt, or start the server with a larger context",
            )
        if request.max_tokens is not None and request.max_tokens < 1:
            raise RequestError(f"max_tokens is {request.max_tokens}; it must be at least 1", parameter="max_tokens")
        alive, most = len(self._running) + len(self._waiting), self.limits.max_sequences + self.limits.queue_limit
        if alive >= most:
            raise OverloadedError(f"{alive} sequences are running or waiting, which is the limit", retry_after_s=1)
        room = context - prompt
        sequence = ScheduledSequence(
            self._next_id, request, room if request.max_tokens is None else min(room, request.max_tokens)
        )
        self._next_id += 1
        self._waiting.append(sequence)
        return sequence.sequence_id

    def cancel(self, sequence_id: int) -> bool:
        """Ends a sequence without a further event; False when it has ended already.

        Its pages are free at once, or at the commit of the step that is using them.
        """
        for sequence in self._waiting:
            if sequence.sequence_id == sequence_id:
                self._waiting.remove(sequence)
                return True
        for sequence in self._running:
            if sequence.sequence_id == sequence_id and not sequence.cancelled:
                if self._in_flight is None:
                    self._retire(sequence)
                else:
                    sequence.cancelled = True
                return True
        return False

    def plan(self) -> BatchPlan | None:
        """The next step, or None when there is nothing to do. Each plan must be answered by one `commit`."""
        if self._in_flight is not None:
            raise RuntimeError("the last plan has not been committed")
        steps: list[SequenceStep] = []
        fresh: list[int] = []
        decoding = sum(1 for s in self._running if s.remaining == 1)
        budget = self.limits.step_tokens - decoding  # of prompt chunks; every decode row has its place already
        preempted = self._preemptions
        index = 0
        while index < len(self._running):  # the list shrinks from its end when a younger sequence is pushed out
            sequence = self._running[index]
            index += 1
            chunk = 1 if sequence.remaining == 1 else min(sequence.remaining, budget)
            if chunk == 0 or not self._make_room(sequence, chunk, fresh):
                continue
            budget -= chunk if sequence.remaining > 1 else 0
            steps.append(self._step(sequence, chunk))
        if self._preemptions == preempted:
            self._admit(budget, steps, fresh)
        if not steps:
            return None
        self._in_flight = BatchPlan(tuple(steps), tuple(fresh))
        return self._in_flight

    def commit(self, results: StepResults, time_s: float) -> list[SequenceEvents]:
        """Takes the answer to the last plan; `time_s` is when the step ended.

        Raises:
            RuntimeError: there is no plan in flight, or the answer is to another one.
        """
        plan = self._in_flight
        if plan is None or [s.sequence_id for s in plan.steps] != [r.sequence_id for r in results.results]:
            raise RuntimeError("the results do not answer the plan in flight")
        self._in_flight = None
        by_id = {s.sequence_id: s for s in self._running}
        out = []
        for step, result in zip(plan.steps, results.results, strict=True):
            event = self._apply(by_id[step.sequence_id], step, result, time_s)
            if event is not None:
                out.append(SequenceEvents(step.sequence_id, (event,)))
        for sequence in by_id.values():  # cancelled during the step without being part of it
            if sequence.cancelled:
                self._retire(sequence)
        return out

    def clear(self) -> list[int]:
        """Drops every sequence and the plan in flight; returns their ids. For shutdown and after a failed step."""
        self._in_flight = None
        gone = [s.sequence_id for s in self._running if not s.cancelled]
        gone += [s.sequence_id for s in self._waiting]
        for sequence in list(self._running):
            self._retire(sequence)
        self._waiting.clear()
        return gone

    def _apply(
        self, sequence: ScheduledSequence, step: SequenceStep, result: SequenceResult, time_s: float
    ) -> TokenEvent | None:
        """Books one result; an event when there is something to tell."""
        if sequence.cancelled:
            return None
        sequence.computed += len(step.tokens)
        if result.error:
            self._retire(sequence)
            return TokenEvent(None, time_s, finish_reason=FinishReason.ERROR, error=result.error)
        if step.sampling is None:
            return None
        if result.token_id is None:
            raise RuntimeError(f"sequence {step.sequence_id} was to draw a token and came back without one")
        sequence.tokens.append(result.token_id)
        reason = None
        if result.token_id in self._stop_tokens and not sequence.request.ignore_eos:
            reason = FinishReason.STOP
        elif sequence.output_length >= sequence.max_output:
            reason = FinishReason.LENGTH
        if reason is not None:
            self._retire(sequence)
        return TokenEvent(result.token_id, time_s, result.logprob, result.top_logprobs, reason)

    def _admit(self, budget: int, steps: list[SequenceStep], fresh: list[int]) -> None:
        """Starts waiting sequences, in order, while there are slots, budget and pages."""
        while self._waiting and budget > 0 and len(self._running) < self.limits.max_sequences:
            sequence = self._waiting[0]
            # Started only when it fits beside what the running ones are about to take: otherwise it would be pushed
            # out a few steps later and its prompt computed again.
            wanted = _wanted_pages(sequence) + sum(_wanted_pages(s) for s in self._running)
            if self._running and wanted > self._ledger.free_count:
                return
            self._waiting.popleft()
            self._running.append(sequence)
            chunk = min(sequence.remaining, budget)
            budget -= chunk
            if not self._make_room(sequence, chunk, fresh):
                raise RuntimeError("an admitted sequence found no pages")
            steps.append(self._step(sequence, chunk))

    def _make_room(self, sequence: ScheduledSequence, chunk: int, fresh: list[int]) -> bool:
        """Gives the pages for the next `chunk` tokens, pushing out the youngest when short. False: that was itself."""
        missing = pages_for(sequence.computed + chunk) - len(sequence.pages)
        while missing > self._ledger.free_count:
            youngest = self._running[-1]
            self._preempt(youngest)
            if youngest is sequence:
                return False
        pages = self._ledger.allocate(max(0, missing))
        sequence.pages.extend(pages)
        fresh.extend(pages)
        return True

    def _preempt(self, sequence: ScheduledSequence) -> None:
        """Back to the head of the line without pages; its tokens are kept and computed again."""
        self._retire(sequence)
        sequence.computed = 0
        self._waiting.appendleft(sequence)
        self._preemptions += 1

    def _retire(self, sequence: ScheduledSequence) -> None:
        """Out of the running set, its pages free."""
        self._running.remove(sequence)
        self._ledger.release(sequence.pages)
        sequence.pages.clear()

    def _step(self, sequence: ScheduledSequence, chunk: int) -> SequenceStep:
        begin = sequence.computed
        draws = chunk == sequence.remaining
        return SequenceStep(
            sequence_id=sequence.sequence_id,
            tokens=tuple(sequence.tokens[begin : begin + chunk]),
            position=begin,
            pages=tuple(sequence.pages),
            sampling=sequence.sampling if draws else None,
            history=sequence.history() if draws else None,
        )
