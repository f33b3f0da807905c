from __future__ import annotations

import pytest

from scripted_runner import ScriptedRunner, expected_output
from tokenmill.scheduling.batch_plan import SequenceStep, StepResults
from tokenmill.scheduling.limits import SchedulerLimits
from tokenmill.scheduling.page_ledger import PageLedger, pages_for
from tokenmill.scheduling.scheduler import Scheduler
from tokenmill.vocabulary.errors import OverloadedError, RequestError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, SamplingParams, TokenEvent

LIMITS = SchedulerLimits(context_length=64, page_count=16, max_sequences=4, step_tokens=8, queue_limit=8)


def request(prompt: list[int], max_tokens: int | None = 4, **sampling: float) -> GenerationRequest:
    return GenerationRequest(tuple(prompt), SamplingParams(**sampling), max_tokens)  # type: ignore[arg-type]


def drain(scheduler: Scheduler, runner: ScriptedRunner) -> dict[int, list[TokenEvent]]:
    events: dict[int, list[TokenEvent]] = {}
    clock = 0.0
    while (plan := scheduler.plan(clock)) is not None:
        clock += 1.0
        for item in scheduler.commit(runner.run(plan), clock):
            events.setdefault(item.sequence_id, []).extend(item.events)
    return events


def tokens_of(events: list[TokenEvent]) -> list[int | None]:
    return [event.token_id for event in events]


def test_ledger_refuses_what_it_does_not_have() -> None:
    ledger = PageLedger(3)
    held = ledger.allocate(2)
    with pytest.raises(ValueError, match="2 pages asked for, 1 are free"):
        ledger.allocate(2)
    ledger.release(held)
    with pytest.raises(ValueError, match="nobody holds it"):
        ledger.release(held)
    assert [pages_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_a_prompt_is_computed_in_chunks_and_draws_only_at_its_end() -> None:
    scheduler, runner = Scheduler(LIMITS), ScriptedRunner(16)
    scheduler.add(request(list(range(20)), 3), 0.0)
    events = drain(scheduler, runner)
    assert [(len(p.steps[0].tokens), p.steps[0].sampling is not None) for p in runner.plans] == [
        (8, False),
        (8, False),
        (4, True),
        (1, True),
        (1, True),
    ]
    assert tokens_of(events[0]) == expected_output(range(20), 3)
    assert events[0][-1].finish_reason is FinishReason.LENGTH
    assert scheduler.state.free_pages == 16


def test_decode_rows_run_beside_a_prefill_within_the_budget() -> None:
    scheduler, runner = Scheduler(LIMITS), ScriptedRunner(16)
    scheduler.add(request([1], 12), 0.0)
    scheduler.commit(runner.run(scheduler.plan(0.0)), 0.0)  # type: ignore[arg-type]
    scheduler.add(request(list(range(30)), 2), 0.0)
    events = drain(scheduler, runner)
    mixed = [plan for plan in runner.plans if len(plan.steps) == 2]
    assert [plan.token_count for plan in mixed][:4] == [8, 8, 8, 8]
    assert all(len(plan.steps[0].tokens) == 1 for plan in mixed)
    assert tokens_of(events[1]) == expected_output(range(30), 2)


def test_the_same_tokens_alone_and_in_company() -> None:
    scheduler, runner = Scheduler(LIMITS), ScriptedRunner(16)
    prompts = [[i, i + 1, i + 2] * (i + 1) for i in range(7)]
    ids = [scheduler.add(request(prompt, 10), 0.0) for prompt in prompts]
    events = drain(scheduler, runner)
    for sequence_id, prompt in zip(ids, prompts, strict=True):
        assert tokens_of(events[sequence_id]) == expected_output(prompt, 10)


def test_preemption_recomputes_and_spares_the_oldest() -> None:
    limits = SchedulerLimits(context_length=160, page_count=10, max_sequences=4, step_tokens=64, queue_limit=8)
    scheduler, runner = Scheduler(limits), ScriptedRunner(10)
    ids = [scheduler.add(request([i] * 8, 120), 0.0) for i in range(3)]
    events = drain(scheduler, runner)
    assert scheduler.state.preemptions > 0
    for i, sequence_id in enumerate(ids):
        assert tokens_of(events[sequence_id]) == expected_output([i] * 8, 120)
    ends = [events[sequence_id][-1].time_s for sequence_id in ids]
    assert ends == sorted(ends)
    first_of_oldest = [p.steps[0].position for p in runner.plans if p.steps[0].sequence_id == ids[0]]
    assert first_of_oldest == sorted(set(first_of_oldest)), "the oldest was pushed out"


def test_stop_token_ends_a_sequence_unless_ignored() -> None:
    stop = expected_output([5, 6], 3)[2]
    scheduler, runner = Scheduler(LIMITS, {stop}), ScriptedRunner(16)
    scheduler.add(request([5, 6], 10), 0.0)
    scheduler.add(GenerationRequest((5, 6), SamplingParams(), 5, ignore_eos=True), 0.0)
    events = drain(scheduler, runner)
    first_stop = expected_output([5, 6], 10).index(stop)
    assert tokens_of(events[0]) == expected_output([5, 6], first_stop + 1)
    assert events[0][-1].finish_reason is FinishReason.STOP
    assert len(events[1]) == 5


def test_context_limit_ends_a_sequence() -> None:
    scheduler, runner = Scheduler(LIMITS), ScriptedRunner(16)
    scheduler.add(request(list(range(60)), None), 0.0)
    scheduler.add(request(list(range(63)), 50), 0.0)
    events = drain(scheduler, runner)
    assert (len(events[0]), len(events[1])) == (4, 1)
    assert events[1][0].finish_reason is FinishReason.LENGTH


def test_an_error_stops_one_sequence_only() -> None:
    def fail(step: SequenceStep) -> str:
        return "a value is not finite" if step.sequence_id == 1 and step.position >= 4 else ""

    scheduler, runner = Scheduler(LIMITS), ScriptedRunner(16, fail_when=fail)
    for i in range(3):
        scheduler.add(request([i, i], 6), 0.0)
    events = drain(scheduler, runner)
    assert events[1][-1].finish_reason is FinishReason.ERROR
    assert events[1][-1].error == "a value is not finite"
    assert tokens_of(events[2]) == expected_output([2, 2], 6)
    assert scheduler.state.free_pages == 16


def test_requests_that_cannot_be_served_are_refused_with_the_numbers() -> None:
    scheduler = Scheduler(LIMITS)
    with pytest.raises(RequestError, match="64 tokens, but the context holds 64"):
        scheduler.add(request([1] * 64), 0.0)
    with pytest.raises(RequestError, match="empty"):
        scheduler.add(request([]), 0.0)
    with pytest.raises(RequestError, match="max_tokens is 0"):
        scheduler.add(request([1], 0), 0.0)
    for _ in range(4 + 8):
        scheduler.add(request([1]), 0.0)
    with pytest.raises(OverloadedError, match="12 sequences are running or waiting"):
        scheduler.add(request([1]), 0.0)


def test_cancel_while_waiting_running_and_in_flight() -> None:
    scheduler, runner = Scheduler(LIMITS), ScriptedRunner(16)
    ids = [scheduler.add(request([i] * 4, 20), 0.0) for i in range(6)]
    assert scheduler.cancel(ids[5])
    plan = scheduler.plan(0.0)
    assert plan is not None
    assert scheduler.cancel(ids[0])
    assert not scheduler.cancel(ids[0])
    told = [item.sequence_id for item in scheduler.commit(runner.run(plan), 0.0)]
    assert ids[0] not in told
    assert scheduler.cancel(ids[1])
    assert set(drain(scheduler, runner)) == set(ids[2:5])
    assert scheduler.state.free_pages == 16
    assert not scheduler.cancel(99)


def test_history_goes_along_only_with_a_penalty() -> None:
    scheduler, runner = Scheduler(LIMITS), ScriptedRunner(16)
    scheduler.add(request([1, 2], 3), 0.0)
    scheduler.add(request([3, 4], 3, presence_penalty=0.5), 0.0)
    plan = scheduler.plan(0.0)
    assert plan is not None
    assert plan.steps[0].history is None
    assert plan.steps[1].history is not None
    assert list(plan.steps[1].history.tokens) == [3, 4]
    assert plan.steps[1].history.prompt_length == 2
    scheduler.commit(runner.run(plan), 0.0)


def test_plans_and_results_must_alternate() -> None:
    scheduler, runner = Scheduler(LIMITS), ScriptedRunner(16)
    with pytest.raises(RuntimeError, match="do not answer"):
        scheduler.commit(StepResults(()), 0.0)
    scheduler.add(request([1]), 0.0)
    plan = scheduler.plan(0.0)
    with pytest.raises(RuntimeError, match="not been committed"):
        scheduler.plan(0.0)
    with pytest.raises(RuntimeError, match="do not answer"):
        scheduler.commit(StepResults(()), 0.0)
    assert plan is not None
    scheduler.commit(runner.run(plan), 0.0)


def test_clear_forgets_everything() -> None:
    scheduler = Scheduler(LIMITS)
    ids = [scheduler.add(request([1, 2]), 0.0) for _ in range(6)]
    scheduler.plan(0.0)
    scheduler.cancel(ids[0])
    assert scheduler.clear() == ids[1:]
    assert scheduler.state.free_pages == 16
    assert scheduler.plan(0.0) is None


@pytest.mark.parametrize(
    "limits",
    [
        {"context_length": 64, "page_count": 3},
        {"context_length": 64, "page_count": 4, "max_sequences": 8, "step_tokens": 8},
        {"context_length": 1, "page_count": 4},
        {"context_length": 64, "page_count": 4, "queue_limit": -1},
    ],
)
def test_limits_that_cannot_work_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must|cannot|at least"):
        SchedulerLimits(**limits)
