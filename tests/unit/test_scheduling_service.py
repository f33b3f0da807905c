"""Priorities, preemption, rates, fairness and the inter-token target, on a simulated machine."""

from __future__ import annotations

import random
import time
from statistics import fmean

import pytest

from scheduling_books import check_books
from simulated_machine import KV_BYTES, Chat, SimulatedMachine, percentile
from tokenmill.scheduling.limits import SchedulerLimits
from tokenmill.scheduling.waiting_line import PRIORITY_S
from tokenmill.vocabulary.errors import OverloadedError

SLOTS = 16


def limits(pages: int = 4000, slots: int = SLOTS, target: float | None = None, queue: int = 256) -> SchedulerLimits:
    return SchedulerLimits(32_768, max(pages, 2048), slots, 256 + slots, queue, target, KV_BYTES)


def finish(machine: SimulatedMachine, *chats: Chat) -> None:
    while not all(chat.ended for chat in chats):
        assert machine.step()


def test_first_tokens_of_a_wave_come_one_after_another() -> None:
    machine = SimulatedMachine(limits())
    chats = [machine.submit(110, 64) for _ in range(SLOTS)]
    finish(machine, *chats)
    first = [chat.ttft_s for chat in chats]
    assert first == sorted(first)
    assert first[0] < 0.15 * first[-1]
    gaps = [gap for chat in chats for gap in chat.gaps_s]
    assert percentile(gaps, 99) < 0.12


@pytest.mark.parametrize("target", [0.06, 0.1, 0.2])
def test_running_streams_keep_the_target_while_prompts_come(target: float) -> None:
    machine = SimulatedMachine(limits(target=target), noise=0.1)
    rng = random.Random(2)
    chats = machine.keep_up(8, 40.0, lambda: rng.randint(50, 900), lambda: rng.randint(20, 90))
    gaps = [gap for chat in chats[8:] for gap in chat.gaps_s]
    assert len(gaps) > 500
    assert percentile(gaps, 90) < 1.2 * target
    assert percentile(gaps, 99) < 1.3 * target


def test_without_a_target_no_gap_is_much_longer_than_a_step() -> None:
    machine = SimulatedMachine(limits(), noise=0.03)
    chats = machine.keep_up(4, 40.0, lambda: 110, lambda: 64)
    gaps = [gap for chat in chats[4:] for gap in chat.gaps_s]
    assert max(gaps) < 4.2 * percentile(gaps, 50)


def test_a_long_prompt_does_not_hold_up_short_ones() -> None:
    machine = SimulatedMachine(limits())
    machine.submit(20_000, 10)
    machine.step()
    short = machine.submit(100, 10)
    finish(machine, short)
    assert short.ttft_s < 2.0


def chats_beside(reply: int | None, output: int) -> tuple[list[float], Chat | None]:
    """Gaps of 15 closed-loop chats, beside a reply whose context has `reply` tokens already."""
    machine = SimulatedMachine(limits(6000))
    rng = random.Random(3)
    long = None if reply is None else machine.submit(reply, 32_000 - reply)
    while long is not None and not long.token_s:
        machine.step()
    begin = machine.now_s
    chats = machine.keep_up(15, begin + 40.0, lambda: rng.randint(100, 120), lambda: rng.randint(output, 2 * output))
    return [gap for chat in chats for gap in chat.gaps_s], long


@pytest.mark.parametrize("output", [64, 200])
def test_a_reply_with_a_long_context_leaves_its_neighbours_tail_alone(output: int) -> None:
    alone, _ = chats_beside(None, output)
    beside, long = chats_beside(30_000, output)
    assert percentile(beside, 99) < 1.2 * percentile(alone, 99)
    assert fmean(beside) < 1.2 * fmean(alone)
    assert long is not None
    assert len(long.token_s) > 20, "it goes on, though slower"
    rows = 1.0 + 30_000 * KV_BYTES / 9e9 / 0.0225  # what its row would cost a decode step of 15 chats
    assert rows > 2.5, "the test has a reply that would more than double the step"


def test_replies_with_equal_contexts_are_equals() -> None:
    machine = SimulatedMachine(limits(9000, slots=4))
    chats = [machine.submit(8000, 30) for _ in range(3)]
    finish(machine, *chats)
    assert sum(plan.deferred for plan in machine.plans) == 0


def test_a_limited_rate_is_kept_and_the_machine_rests_meanwhile() -> None:
    machine = SimulatedMachine(limits())
    slow = machine.submit(20, 41, max_tokens_per_s=5.0)
    free = machine.submit(20, 41)
    finish(machine, slow, free)
    assert slow.token_s[-1] - slow.token_s[0] == pytest.approx(40 / 5.0, rel=0.03)
    assert max(slow.gaps_s) < 0.25
    assert free.token_s[-1] - free.token_s[0] < 1.0
    assert len(machine.plans) < 90


def test_priority_goes_first_and_takes_a_slot() -> None:
    machine = SimulatedMachine(limits(slots=2))
    running = [machine.submit(50, 200) for _ in range(2)]
    waiting = machine.submit(50, 10)
    for _ in range(5):
        machine.step()
    urgent = machine.submit(50, 10, priority=1)
    finish(machine, urgent)
    assert not any(chat.ended for chat in running)
    assert not waiting.token_s
    assert machine.scheduler.state.preemptions == 1
    finish(machine, *running, waiting)
    assert [len(chat.token_s) for chat in (*running, waiting)] == [200, 200, 10]
    assert running[0].token_s[-1] < running[1].token_s[-1], "the youngest was pushed out"


def test_waiting_makes_up_for_priority() -> None:
    machine = SimulatedMachine(limits(slots=1))
    patient = machine.submit(50, 10, priority=0)
    pushers: list[Chat] = []
    while not patient.ended:
        if not pushers or pushers[-1].token_s:
            pushers.append(machine.submit(50, 60, priority=2))
        machine.step()
    assert 2 * PRIORITY_S <= patient.token_s[-1] < 2 * PRIORITY_S + 5.0


def test_short_of_pages_the_lowest_priority_gives_way_first() -> None:
    machine = SimulatedMachine(limits(2048, slots=4))
    low = machine.submit(16_000, 2000, priority=-10)
    finish_first_token(machine, low)
    high = machine.submit(16_000, 2000)
    finish(machine, high)
    assert machine.scheduler.state.preemptions >= 1
    assert not low.ended or low.token_s[-1] < high.token_s[0]
    check_books(machine.scheduler)
    finish(machine, low)


def finish_first_token(machine: SimulatedMachine, chat: Chat) -> None:
    while not chat.token_s:
        machine.step()


def test_a_deadline_is_predicted_well_enough_to_refuse() -> None:
    machine = SimulatedMachine(limits(slots=4))
    machine.keep_up(4, 20.0, lambda: 110, lambda: 64)
    kept: list[Chat] = []
    refused: list[OverloadedError] = []
    for _ in range(60):
        try:
            kept.append(machine.submit(400, 64, first_token_within_s=8.0))
        except OverloadedError as error:
            refused.append(error)
    assert len(refused) > 10
    assert all(error.reason == "deadline" and error.retry_after_s >= 1 for error in refused)
    assert len(kept) > 4
    finish(machine, *kept)
    assert max(chat.ttft_s for chat in kept) < 1.5 * 8.0
    assert max(chat.ttft_s for chat in kept) > 0.5 * 8.0, "it refuses too much"


def test_a_step_costs_little_python() -> None:
    machine = SimulatedMachine(limits(slots=16))
    for _ in range(16):
        machine.submit(400, 400)
    while machine.scheduler.state.prompt_tokens < 16 * 400:
        machine.step()
    begin = time.thread_time()
    for _ in range(200):
        machine.step()
    assert (time.thread_time() - begin) / 200 < 0.001, "5 % of a step of 20 ms, the simulation included"
