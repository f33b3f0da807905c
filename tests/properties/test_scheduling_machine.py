"""Random traffic against the scheduler: whatever arrives and leaves, no page is lost or written by two, and all end."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduling_books import check_books
from scripted_runner import ScriptedRunner, expected_output
from tokenmill.scheduling.batch_plan import BatchPlan
from tokenmill.scheduling.limits import SchedulerLimits
from tokenmill.scheduling.page_ledger import pages_for
from tokenmill.scheduling.recording import RecordedScheduler, replay
from tokenmill.scheduling.waiting_line import service_key
from tokenmill.vocabulary.errors import OverloadedError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, SamplingParams

# Prompts begin alike, so that prefixes are shared, at lengths around a page's 16 tokens.
PREFIXES = ([], [1] * 15, [1] * 16, [1] * 17, list(range(40)), [2] * 64)


class Traffic(RuleBasedStateMachine):
    @initialize(
        context_pages=st.integers(1, 16),
        spare_pages=st.integers(0, 6),
        max_sequences=st.integers(1, 5),
        spare_tokens=st.integers(1, 40),
        queue_limit=st.integers(0, 6),
        cached_pages=st.none() | st.integers(0, 4),
        itl_target_s=st.none() | st.floats(1e-4, 10),
        bytes_per_token=st.sampled_from([1, 10**6, 10**8]),
    )
    def start(
        self,
        context_pages: int,
        spare_pages: int,
        max_sequences: int,
        spare_tokens: int,
        queue_limit: int,
        cached_pages: int | None,
        itl_target_s: float | None,
        bytes_per_token: int,
    ) -> None:
        pages = context_pages + spare_pages
        self.limits = SchedulerLimits(
            context_pages * 16,
            pages,
            max_sequences,
            max_sequences + spare_tokens,
            queue_limit,
            itl_target_s,
            bytes_per_token,
            cached_pages,
        )
        self.record: list[str] = []
        self.scheduler = RecordedScheduler(self.limits, frozenset(), lambda line: self.record.append(line + "\n"))
        self.runner = ScriptedRunner(pages)
        self.requests: dict[int, GenerationRequest] = {}
        self.outputs: dict[int, list[int]] = {}
        self.keys: dict[int, tuple[float, int]] = {}  # of those alive
        self.plan: BatchPlan | None = None
        self.clock = 0.0
        self.steps_without_first = 0

    @property
    def alive(self) -> set[int]:
        return set(self.keys)

    @rule(
        prefix=st.sampled_from(PREFIXES),
        prompt=st.lists(st.integers(0, 96), min_size=1, max_size=60),
        max_tokens=st.integers(1, 260) | st.none(),
        priority=st.integers(-3, 3),
        rate=st.none() | st.floats(0.5, 200),
        deadline=st.none() | st.floats(0, 100),
        scope=st.sampled_from(["", "other"]),
    )
    def add(
        self,
        prefix: list[int],
        prompt: list[int],
        max_tokens: int | None,
        priority: int,
        rate: float | None,
        deadline: float | None,
        scope: str,
    ) -> None:
        tokens = tuple([*prefix, *prompt][: self.limits.context_length - 1])
        asked = GenerationRequest(
            tokens,
            SamplingParams(),
            max_tokens,
            priority=priority,
            max_tokens_per_s=rate,
            first_token_within_s=deadline,
            cache_scope=scope,
        )
        state = self.scheduler.state
        full = state.running + state.waiting >= self.limits.max_sequences + self.limits.queue_limit
        refused: OverloadedError | None = None
        try:
            sequence_id = self.scheduler.add(asked, self.clock)
        except OverloadedError as error:
            refused = error
        if refused is not None:
            assert refused.reason == "queue_full" if full else refused.reason == "deadline" and deadline is not None
            assert 1 <= refused.retry_after_s <= 3600
            return
        assert not full
        self.requests[sequence_id] = asked
        self.outputs[sequence_id] = []
        self.keys[sequence_id] = service_key(self.clock, priority, sequence_id)

    @precondition(lambda self: self.plan is None)
    @rule()
    def begin_step(self) -> None:
        self.plan = self.scheduler.plan(self.clock)
        if self.plan is None:
            due = self.scheduler.due_s()
            assert (due is None) == (not self.alive), "work waits but no step is planned"
            assert due is None or due > self.clock
            self.clock = due or self.clock
            return
        assert self.plan.token_count <= self.limits.step_tokens
        assert len(self.plan.steps) <= self.limits.max_sequences
        ids = [step.sequence_id for step in self.plan.steps]
        assert set(ids) <= self.alive
        assert ids == sorted(ids, key=self.keys.__getitem__)
        for step in self.plan.steps:
            assert len(step.pages) >= pages_for(step.position + len(step.tokens))
        first = min(self.alive, key=self.keys.__getitem__)
        unlimited = self.requests[first].max_tokens_per_s is None
        self.steps_without_first = self.steps_without_first + 1 if first not in ids and unlimited else 0
        assert self.steps_without_first <= 130, "the first in order is not served"

    @precondition(lambda self: self.plan is not None)
    @rule(seconds=st.sampled_from([0.0, 1e-6, 0.02, 0.02, 0.02, 0.2, 50.0]))
    def end_step(self, seconds: float = 0.02) -> None:
        assert self.plan is not None
        self.clock += seconds
        told = self.scheduler.commit(self.runner.run(self.plan), self.clock)
        self.plan = None
        for item in told:
            assert item.sequence_id in self.alive
            for event in item.events:
                assert event.token_id is not None
                assert event.time_s == self.clock
                self.outputs[item.sequence_id].append(event.token_id)
                if event.finish_reason is not None:
                    assert event.finish_reason is FinishReason.LENGTH
                    del self.keys[item.sequence_id]
                    self.check_output(item.sequence_id, complete=True)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        sequence_id = data.draw(st.sampled_from(sorted(self.alive)))
        assert self.scheduler.cancel(sequence_id)
        del self.keys[sequence_id]
        assert not self.scheduler.cancel(sequence_id)
        if not self.alive and self.plan is None:
            assert self.scheduler.state.free_pages == self.limits.page_count

    @rule()
    def run_to_the_end(self) -> None:
        budget = 40_000
        while self.alive:
            (self.begin_step if self.plan is None else self.end_step)()
            budget -= 1
            assert budget > 0, "a sequence does not end"
        if self.plan is not None:
            self.end_step()
        assert self.scheduler.state.free_pages == self.limits.page_count
        assert self.scheduler.plan(self.clock) is None

    def check_output(self, sequence_id: int, *, complete: bool) -> None:
        asked, output = self.requests[sequence_id], self.outputs[sequence_id]
        assert output == expected_output(asked.prompt_tokens, len(output))
        if complete:
            room = self.limits.context_length - len(asked.prompt_tokens)
            assert len(output) == (room if asked.max_tokens is None else min(room, asked.max_tokens))

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "scheduler"):
            check_books(self.scheduler)
            if self.plan is None:
                state = self.scheduler.state
                assert state.running + state.waiting == len(self.alive)
                assert state.running <= self.limits.max_sequences

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.run_to_the_end()
            assert all(recorded == made for recorded, made in replay(self.record))


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@pytest.mark.scheduled
class TestMuchTraffic(Traffic.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(max_examples=1000, stateful_step_count=80, deadline=None)
