from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tokenmill.scheduling.step_cost import StepCost, StepWork, seen_bytes


def true_seconds(work: StepWork, speed: float = 1.0) -> float:
    fixed, prefill, decode, decode_kv, prefill_kv = 0.004, 0.0003, 0.0001, 5e-11, 2e-11
    return speed * (
        fixed
        + prefill * work.prefill_tokens
        + decode * work.decode_rows
        + decode_kv * work.decode_kv_bytes
        + prefill_kv * work.prefill_kv_bytes
    )


def some_work(rng: random.Random) -> StepWork:
    rows = rng.randint(0, 16)
    chunk = rng.choice([0, 0, 0, 16, 40, 256]) or (0 if rows else 64)
    return StepWork(chunk, rows, rows * rng.randint(1, 10**7), chunk * rng.randint(1, 10**7))


def trained(steps: int, disturb: Callable[[random.Random, float], float]) -> StepCost:
    cost, rng = StepCost(), random.Random(4)
    for _ in range(steps):
        work = some_work(rng)
        cost.observe(work, disturb(rng, true_seconds(work)))
    return cost


def worst_error(cost: StepCost, speed: float = 1.0) -> float:
    rng = random.Random(5)
    works = [some_work(rng) for _ in range(200)]
    return max(abs(cost.predict(work) / true_seconds(work, speed) - 1) for work in works)


def test_it_learns_from_a_few_steps() -> None:
    assert worst_error(trained(60, lambda rng, s: s)) < 0.2
    assert worst_error(trained(400, lambda rng, s: s)) < 0.08


def test_noise_and_outliers_do_not_mislead_it() -> None:
    def disturb(rng: random.Random, seconds: float) -> float:
        seconds *= rng.lognormvariate(0, 0.15)
        return seconds * 50 if rng.random() < 0.03 else seconds

    assert worst_error(trained(600, disturb)) < 0.15


def test_a_clock_that_jumps_or_stands_still_is_no_measurement() -> None:
    cost = trained(200, lambda rng, s: s)
    for seconds in (0.0, -3.0, float("inf"), float("nan"), 1e9):
        cost.observe(StepWork(16, 4), seconds)
    assert worst_error(cost) < 0.1


def test_it_follows_a_change_of_speed() -> None:
    cost, rng = trained(300, lambda rng, s: s), random.Random(6)
    for _ in range(400):
        work = some_work(rng)
        cost.observe(work, true_seconds(work, 2.0))
    assert worst_error(cost, 2.0) < 0.15


def test_steps_of_one_kind_leave_the_other_coefficients_alone() -> None:
    cost = trained(300, lambda rng, s: s)
    before = cost.predict(StepWork(256, 0, 0, 10**8))
    for _ in range(3_000):
        cost.observe(StepWork(0, 1, 10**6), true_seconds(StepWork(0, 1, 10**6)))
    assert cost.predict(StepWork(256, 0, 0, 10**8)) == pytest.approx(before, rel=0.3)
    assert min(cost.coefficients) >= 0


def test_chunks_fill_the_time_given() -> None:
    cost = trained(300, lambda rng, s: s)
    for position in (0, 1000, 30_000):
        count = cost.prefill_within(0.05, position, 12_288)
        assert cost.prefill_s(count, position, 12_288) <= 0.05 < cost.prefill_s(count + 1, position, 12_288)
    assert cost.prefill_within(0.0, 0, 1) == cost.prefill_within(-1.0, 0, 1) == 0
    assert seen_bytes(3, 10, 2) == 2 * (11 + 12 + 13)


@pytest.mark.parametrize("scale", [0.1, 30.0], ids=["a small model", "a large one"])
def test_the_guess_is_forgotten_within_a_few_steps(scale: float) -> None:
    cost = StepCost()
    assert cost.trusted_tokens == 32
    for tokens in (32, 64, 100, 100, 60):
        seconds = scale * (0.015 + 0.002 * tokens)
        cost.observe(StepWork(tokens, 0, 0, tokens * tokens), seconds)
    assert cost.predict(StepWork(100, 0, 0, 10_000)) == pytest.approx(scale * 0.215, rel=0.15)
    assert cost.trusted_tokens == 1024
