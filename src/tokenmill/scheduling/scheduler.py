"""Continuous batching: decides before each step which sequences compute which tokens, and what a result means.

Each step takes one token of every sequence that is decoding, and as many prompt tokens as a cost model learned from
earlier steps says will fit within the inter-token target, the oldest prompt first. Sequences are served in the order of
their keys (arrival, moved by priority). When KV pages run out, the last in that order gives all of its pages back and
later computes them again, or finds them in the prefix cache (the numerics contract makes them the same bits). The first
in order can always push out all others and alone always fits, so every sequence ends.

Pure: no clock (the caller passes times in), no threads, no I/O. The caller serialises the calls.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from tokenmill.scheduling.admission import Outlook, admit
from tokenmill.scheduling.batch_plan import (
    BatchPlan,
    SequenceResult,
    SequenceStart,
    SequenceStep,
    StepResults,
)
from tokenmill.scheduling.decode_rows import choose_rows, settle, step_target
from tokenmill.scheduling.limits import SchedulerLimits, SchedulerState
from tokenmill.scheduling.page_ledger import PageLedger, pages_for
from tokenmill.scheduling.prefill_chunks import LEAST_CHUNK, prefill_chunks, slack_alone_s
from tokenmill.scheduling.prefix_cache import PrefixCache
from tokenmill.scheduling.sequence import ScheduledSequence
from tokenmill.scheduling.step_cost import StepCost, StepWork, seen_bytes
from tokenmill.scheduling.waiting_line import WaitingLine, service_key
from tokenmill.vocabulary.errors import ContextLengthError, OverloadedError, RequestError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, TokenEvent


@dataclass(frozen=True, slots=True)
class SequenceEvents:
    """What a step means for one sequence. The last event of a sequence has a finish_reason."""

    sequence_id: int
    events: tuple[TokenEvent, ...]


# Pages that a sequence is expected to grow by soon: 64 tokens, or less when it ends before.
_GROWTH_PAGES = 4

# Weight of the newest in the running averages of a reply's length and a step's time, and what a reply is thought to be
# before the first one has ended.
_NEWEST = 0.1
_TYPICAL_OUTPUT = 128.0
_LONGEST = 5.0  # times its prediction that a step counts at most


def _wanted_pages(sequence: ScheduledSequence) -> int:
    """Pages it needs beyond those it has, for the tokens it has and some growth."""
    # The last token of a sequence is never stored: nothing comes after it.
    most = pages_for(sequence.prompt_length + sequence.max_output - 1)
    return min(most, pages_for(len(sequence.tokens)) + _GROWTH_PAGES) - len(sequence.pages)


class Scheduler:
    """Owns the waiting line, the running sequences and the KV pages.

    Times are seconds of one clock that does not run backwards.

    Args:
        limits: see SchedulerLimits.
        stop_tokens: the tokens that end a sequence, unless its request ignores them.
    """

    def __init__(self, limits: SchedulerLimits, stop_tokens: AbstractSet[int] = frozenset()) -> None:
        self.limits = limits
        self.cost = StepCost()
        self._stop_tokens = frozenset(stop_tokens)
        self._cache = PrefixCache(PageLedger(limits.page_count), limits.cached_pages)
        self._waiting = WaitingLine()
        self._running: list[ScheduledSequence] = []  # by key
        self._in_flight: BatchPlan | None = None
        self._in_flight_work = StepWork()
        self._planned_s = 0.0
        self._prefill_held_back = False  # the last step had no room for a prompt beside a costly row
        self._blocked: tuple[int, int, int] | None = None  # what the last vain search for cached pages was about
        self._next_id = 0
        self._preemptions = 0
        self._prompt_tokens = 0
        self._cached_prompt_tokens = 0
        self._typical_output = _TYPICAL_OUTPUT
        self._typical_step_s = 0.0

    @property
    def state(self) -> SchedulerState:
        """A snapshot of the counts."""
        return SchedulerState(
            len(self._running),
            len(self._waiting),
            self._cache.available,
            self.limits.page_count,
            self._preemptions,
            self._cache.idle,
            self._prompt_tokens,
            self._cached_prompt_tokens,
        )

    def add(self, request: GenerationRequest, now_s: float) -> int:
        """Puts a request into the line and returns its sequence id.

        Raises:
            ContextLengthError: the prompt fills the context.
            RequestError: the prompt is empty, or max_tokens is below 1.
            OverloadedError: the line is full, or the first token would come too late.
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
        room = context - prompt
        sequence = ScheduledSequence(
            self._next_id,
            request,
            room if request.max_tokens is None else min(room, request.max_tokens),
            now_s,
            service_key(now_s, request.priority, self._next_id),
        )
        alive, most = len(self._running) + len(self._waiting), self.limits.max_sequences + self.limits.queue_limit
        if alive >= most or request.first_token_within_s is not None:
            rejection = admit(alive, most, request.first_token_within_s, self._outlook(sequence))
            if rejection is not None:
                raise OverloadedError(rejection.what, retry_after_s=rejection.retry_after_s, reason=rejection.reason)
        self._next_id += 1
        self._waiting.put(sequence)
        return sequence.sequence_id

    def cancel(self, sequence_id: int) -> bool:
        """Ends a sequence without a further event; False when it has ended already.

        Its pages are free at once, or at the commit of the step that is using them.
        """
        if self._waiting.remove(sequence_id):
            return True
        for sequence in self._running:
            if sequence.sequence_id == sequence_id and not sequence.cancelled:
                if self._in_flight is None:
                    self._retire(sequence)
                else:
                    sequence.cancelled = True
                return True
        return False

    def plan(self, now_s: float) -> BatchPlan | None:
        """The next step, or None when there is nothing to do now. Each plan must be answered by one `commit`.

        After None, `due_s` says when there may be something to do although nothing has come.
        """
        if self._in_flight is not None:
            raise RuntimeError("the last plan has not been committed")
        while True:
            preemptions = self._preemptions
            plan = self._plan_once(now_s)
            # A sequence that found no page may have pushed itself out: then others have room.
            if plan is not None or self._preemptions == preemptions:
                self._in_flight = plan
                self._planned_s = now_s
                return plan

    def due_s(self) -> float | None:
        """When the first of the replies that are held to a rate may go on; None when none is."""
        return min((s.due_s for s in self._running if s.request.max_tokens_per_s and s.remaining == 1), default=None)

    def commit(self, results: StepResults, time_s: float) -> list[SequenceEvents]:
        """Takes the answer to the last plan; `time_s` is when the step ended.

        Raises:
            RuntimeError: there is no plan in flight, or the answer is to another one.
        """
        plan = self._in_flight
        if plan is None or [s.sequence_id for s in plan.steps] != [r.sequence_id for r in results.results]:
            raise RuntimeError("the results do not answer the plan in flight")
        self._in_flight = None
        seconds = time_s - self._planned_s
        self.cost.observe(self._in_flight_work, seconds)
        # However long the process may have been stopped, it was not the step that took so long.
        self._typical_step_s += _NEWEST * (min(seconds, _LONGEST * plan.predicted_s) - self._typical_step_s)
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

    def _plan_once(self, now_s: float) -> BatchPlan | None:
        self._admit()
        per_token = self.limits.kv_bytes_per_token
        decoding = [s for s in self._running if s.remaining == 1]
        ready = [s for s in decoding if s.due_s <= now_s]
        choice = choose_rows(
            ready, self.cost, per_token, self.limits.itl_target_s, with_costly=not self._prefill_held_back
        )
        costly_joined = sum(s in choice.costly for s in choice.rows) if choice.costly else 0
        prefilling = [s for s in self._running if s.remaining > 1]
        chunks = prefill_chunks(
            prefilling,
            slack_s=choice.target_s - choice.seconds if decoding else slack_alone_s(self.cost),
            token_limit=min(self.limits.step_tokens - len(choice.rows), self.cost.trusted_tokens),
            cost=self.cost,
            bytes_per_token=per_token,
            cache=self._cache,
            least=0 if costly_joined else LEAST_CHUNK,
        )
        self._prefill_held_back = bool(costly_joined and prefilling and not chunks)
        counts = {s.sequence_id: 1 for s in choice.rows} | {s.sequence_id: count for s, count in chunks}
        steps, fresh, starts = self._place(counts, now_s)
        if not steps:
            return None
        self._in_flight_work = _work(steps, per_token)
        predicted = self.cost.predict(self._in_flight_work)
        settle(choice, predicted)
        return BatchPlan(tuple(steps), tuple(fresh), predicted, tuple(starts), len(decoding) - len(choice.rows))

    def _place(self, counts: dict[int, int], now_s: float) -> tuple[list[SequenceStep], list[int], list[SequenceStart]]:
        """Gives pages to the sequences of a step, in order of service, as far as there are pages."""
        steps: list[SequenceStep] = []
        fresh: list[int] = []
        starts: list[SequenceStart] = []
        index = 0
        while index < len(self._running):  # the list shrinks from its end when the last one is pushed out
            sequence = self._running[index]
            index += 1
            count = counts.get(sequence.sequence_id, 0)
            if count == 0 or not self._make_room(sequence, count):
                continue
            fresh += self._cache.extend(sequence, count)
            steps.append(_step(sequence, count))
            if not sequence.started:
                sequence.started = True
                starts.append(SequenceStart(sequence.sequence_id, max(0.0, now_s - sequence.arrival_s)))
        return steps, fresh, starts

    def _apply(
        self, sequence: ScheduledSequence, step: SequenceStep, result: SequenceResult, time_s: float
    ) -> TokenEvent | None:
        """Books one result; an event when there is something to tell."""
        if sequence.cancelled:
            return None
        if result.error:
            self._retire(sequence)
            return TokenEvent(None, time_s, finish_reason=FinishReason.ERROR, error=result.error)
        sequence.computed += len(step.tokens)
        self._cache.register(sequence)
        if step.sampling is None:
            return None
        if result.token_id is None:
            raise RuntimeError(f"sequence {step.sequence_id} was to draw a token and came back without one")
        sequence.tokens.append(result.token_id)
        rate = sequence.request.max_tokens_per_s
        if rate:
            sequence.due_s = max(sequence.due_s, time_s - 1 / rate) + 1 / rate
        first = sequence.output_length == 1
        if first:
            self._prompt_tokens += sequence.prompt_length
            self._cached_prompt_tokens += sequence.cached_tokens
        reason = None
        if result.token_id in self._stop_tokens and not sequence.request.ignore_eos:
            reason = FinishReason.STOP
        elif sequence.output_length >= sequence.max_output:
            reason = FinishReason.LENGTH
        if reason is not None:
            self._typical_output += _NEWEST * (sequence.output_length - self._typical_output)
            self._retire(sequence)
        cached = sequence.cached_tokens if first else 0
        return TokenEvent(
            result.token_id, time_s, result.logprob, result.top_logprobs, reason, cached_prompt_tokens=cached
        )

    def _admit(self) -> None:
        """Gives slots to waiting sequences, in order, pushing out those that come after them in that order."""
        while len(self._waiting):
            head = self._waiting.head
            if len(self._running) == self.limits.max_sequences:
                if self._running[-1].key < head.key:
                    return
                self._preempt(self._running[-1])
            elif not self._fits(head):
                if not self._would_fit(head):
                    return
                self._preempt(self._running[-1])
            else:
                bisect.insort(self._running, self._waiting.take(), key=lambda s: s.key)

    def _fits(self, head: ScheduledSequence) -> bool:
        """Whether there are pages for it beside what the running ones are about to take.

        Otherwise it would be pushed out a few steps later and its prompt computed again.
        """
        if not self._running:
            return True
        others = sum(map(_wanted_pages, self._running))
        if _wanted_pages(head) + others <= self._cache.available:
            return True
        search = (head.sequence_id, self._cache.available, others)
        if search == self._blocked:
            return False
        found = self._cache.attach(head)  # what it shares with running ones it need not be given
        if _wanted_pages(head) + others <= self._cache.available:
            head.cached_tokens += found if head.output_length == 0 else 0
            return True
        self._cache.free(head)
        self._blocked = search
        return False

    def _would_fit(self, head: ScheduledSequence) -> bool:
        """Whether pushing out all that come after it in order would make room for it."""
        after = [s for s in self._running if s.key > head.key]
        if not after:
            return False
        others = sum(_wanted_pages(s) for s in self._running if s.key < head.key)
        room = self._cache.available + sum(len(s.pages) for s in after)
        return _wanted_pages(head) + others <= room or len(after) == len(self._running)

    def _make_room(self, sequence: ScheduledSequence, count: int) -> bool:
        """Sees that there are pages for the next `count` tokens, pushing out the last ones. False: that was itself."""
        missing = self._cache.missing(sequence, count)
        while missing > self._cache.available:
            last = self._running[-1]
            self._preempt(last)
            if last is sequence:
                return False
        return True

    def _preempt(self, sequence: ScheduledSequence) -> None:
        """Back into the line without pages; its tokens are kept and computed again."""
        self._retire(sequence)
        if sequence.output_length == 0:
            sequence.cached_tokens = 0
        self._waiting.put(sequence)
        self._preemptions += 1

    def _retire(self, sequence: ScheduledSequence) -> None:
        """Out of the running set, its pages free."""
        self._running.remove(sequence)
        self._cache.free(sequence)

    def _outlook(self, sequence: ScheduledSequence) -> Outlook:
        """What a newcomer would find now."""
        before = [s for s in self._running if s.key < sequence.key]
        waiting = [s for s in self._waiting if s.key < sequence.key]
        base = self.cost.fixed_s + sum(
            self.cost.row_s(len(s.tokens) * self.limits.kv_bytes_per_token) for s in self._running
        )
        slack = step_target(base, self.limits.itl_target_s) - base if self._running else slack_alone_s(self.cost)
        most = self.limits.step_tokens - len(self._running)
        chunk = max(LEAST_CHUNK, min(most, self.cost.prefill_within(slack, 0, self.limits.kv_bytes_per_token)))
        step_s = base + self.cost.prefill_s(chunk, 0, self.limits.kv_bytes_per_token)
        return Outlook(
            prefill_ahead=sum(s.remaining for s in (*before, *waiting) if s.remaining > 1),
            prefill_own=len(sequence.tokens) - self._cache.found_tokens(sequence),
            prefill_tokens_per_s=chunk / step_s,
            running_left=[self._left(s) for s in before],
            waiting_ahead=len(waiting),
            slots=self.limits.max_sequences,
            typical_output=self._typical_output,
            decode_step_s=max(self._typical_step_s, base),
        )

    def _left(self, sequence: ScheduledSequence) -> int:
        """Output tokens that it is expected still to give."""
        typical = max(self._typical_output, sequence.output_length + 1)
        return max(1, min(sequence.max_output, int(typical)) - sequence.output_length)


def _step(sequence: ScheduledSequence, count: int) -> SequenceStep:
    begin = sequence.computed
    draws = count == sequence.remaining
    return SequenceStep(
        sequence_id=sequence.sequence_id,
        tokens=tuple(sequence.tokens[begin : begin + count]),
        position=begin,
        pages=tuple(sequence.pages),
        sampling=sequence.sampling if draws else None,
        history=sequence.history() if draws else None,
    )


def _work(steps: Iterable[SequenceStep], bytes_per_token: int) -> StepWork:
    """What a plan's steps are to the cost model."""
    prefill_tokens = decode_rows = decode_bytes = prefill_bytes = 0
    for step in steps:
        count = len(step.tokens)
        if count == 1:
            decode_rows += 1
            decode_bytes += (step.position + 1) * bytes_per_token
        else:
            prefill_tokens += count
            prefill_bytes += seen_bytes(count, step.position, bytes_per_token)
    return StepWork(prefill_tokens, decode_rows, decode_bytes, prefill_bytes)
