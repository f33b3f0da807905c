"""Random traffic against the scheduler: whatever arrives and leaves, pages are never shared or lost, and all end."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scripted_runner import ScriptedRunner, expected_output
from tokenmill.scheduling.batch_plan import BatchPlan
from tokenmill.scheduling.page_ledger import pages_for
from tokenmill.scheduling.scheduler import Scheduler, SchedulerLimits
from tokenmill.vocabulary.errors import OverloadedError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, SamplingParams


class Traffic(RuleBasedStateMachine):
    @initialize(
        context_pages=st.integers(1, 16),
        spare_pages=st.integers(0, 6),
        max_sequences=st.integers(1, 5),
        spare_tokens=st.integers(1, 40),
        queue_limit=st.integers(0, 6),
    )
    def start(
        self, context_pages: int, spare_pages: int, max_sequences: int, spare_tokens: int, queue_limit: int
    ) -> None:
        pages = context_pages + spare_pages
        self.limits = SchedulerLimits(
            context_pages * 16, pages, max_sequences, max_sequences + spare_tokens, queue_limit
        )
        self.scheduler = Scheduler(self.limits)
        self.runner = ScriptedRunner(pages)
        self.requests: dict[int, GenerationRequest] = {}
        self.outputs: dict[int, list[int]] = {}
        self.alive: set[int] = set()
        self.started: list[int] = []
        self.plan: BatchPlan | None = None
        self.clock = 0.0

    @rule(prompt=st.lists(st.integers(0, 96), min_size=1, max_size=95), max_tokens=st.integers(1, 260) | st.none())
    def add(self, prompt: list[int], max_tokens: int | None) -> None:
        asked = GenerationRequest(tuple(prompt[: self.limits.context_length - 1]), SamplingParams(), max_tokens)
        state = self.scheduler.state
        full = state.running + state.waiting >= self.limits.max_sequences + self.limits.queue_limit
        try:
            sequence_id = self.scheduler.add(asked)
        except OverloadedError:
            assert full
            return
        assert not full
        self.requests[sequence_id] = asked
        self.outputs[sequence_id] = []
        self.alive.add(sequence_id)

    @precondition(lambda self: self.plan is None)
    @rule()
    def begin_step(self) -> None:
        self.plan = self.scheduler.plan()
        assert (self.plan is None) == (not self.alive), "work waits but no step is planned"
        if self.plan is None:
            return
        assert self.plan.token_count <= self.limits.step_tokens
        assert len(self.plan.steps) <= self.limits.max_sequences
        ids = [step.sequence_id for step in self.plan.steps]
        assert ids == sorted(ids)
        assert ids[0] == min(self.alive), "the oldest is always served"
        self.started += [i for i in ids if i not in self.started]
        for step in self.plan.steps:
            assert len(step.pages) >= pages_for(step.position + len(step.tokens))

    @precondition(lambda self: self.plan is not None)
    @rule()
    def end_step(self) -> None:
        assert self.plan is not None
        self.clock += 1.0
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
                    self.alive.discard(item.sequence_id)
                    self.check_output(item.sequence_id, complete=True)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        sequence_id = data.draw(st.sampled_from(sorted(self.alive)))
        assert self.scheduler.cancel(sequence_id)
        self.alive.discard(sequence_id)
        assert not self.scheduler.cancel(sequence_id)
        if not self.alive and self.plan is None:
            assert self.scheduler.state.free_pages == self.limits.page_count

    @rule()
    def run_to_the_end(self) -> None:
        budget = 20_000
        while self.alive:
            (self.begin_step if self.plan is None else self.end_step)()
            budget -= 1
            assert budget > 0, "a sequence does not end"
        if self.plan is not None:
            self.end_step()
        assert self.scheduler.state.free_pages == self.limits.page_count
        assert self.scheduler.plan() is None

    def check_output(self, sequence_id: int, *, complete: bool) -> None:
        asked, output = self.requests[sequence_id], self.outputs[sequence_id]
        assert output == expected_output(asked.prompt_tokens, len(output))
        if complete:
            room = self.limits.context_length - len(asked.prompt_tokens)
            assert len(output) == (room if asked.max_tokens is None else min(room, asked.max_tokens))

    @invariant()
    def first_steps_come_in_order_of_arrival(self) -> None:
        if hasattr(self, "started"):
            assert self.started == sorted(self.started)

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "scheduler") and self.plan is None:
            state = self.scheduler.state
            assert state.running + state.waiting == len(self.alive)
            assert state.running <= self.limits.max_sequences

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.run_to_the_end()


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
