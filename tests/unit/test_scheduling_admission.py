from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.scheduling.admission import Outlook, Rejection, admit, predicted_slot_s, predicted_ttft_s
from tokenmill.scheduling.client_limits import ClientLedger, ClientLimits
from tokenmill.scheduling.token_bucket import TokenBucket

IDLE = Outlook(
    prefill_ahead=0,
    prefill_own=100,
    prefill_tokens_per_s=500.0,
    running_left=(),
    waiting_ahead=0,
    slots=4,
    typical_output=100.0,
    decode_step_s=0.02,
)


def test_prediction_counts_prompts_ahead_and_slots() -> None:
    assert predicted_ttft_s(IDLE) == pytest.approx(0.2)
    assert predicted_ttft_s(dataclasses.replace(IDLE, prefill_ahead=1000)) == pytest.approx(2.2)
    full = dataclasses.replace(IDLE, running_left=(50, 10, 90, 70))
    assert predicted_slot_s(full) == pytest.approx(10 * 0.02)
    assert predicted_slot_s(dataclasses.replace(full, waiting_ahead=2)) == pytest.approx(70 * 0.02)
    assert predicted_slot_s(dataclasses.replace(full, waiting_ahead=4)) == pytest.approx(110 * 0.02)
    assert predicted_slot_s(dataclasses.replace(IDLE, running_left=(9, 9, 9))) == 0.0


def test_a_deadline_that_cannot_be_met_is_refused_with_the_numbers() -> None:
    outlook = dataclasses.replace(IDLE, prefill_ahead=5000)
    assert admit(3, 10, None, outlook) is None
    assert admit(3, 10, 11.0, outlook) is None
    assert admit(3, 10, 2.0, outlook) == Rejection(
        "deadline", "the first token is expected after 10.2 s, but is wanted within 2.0 s", 9
    )


def test_a_full_queue_says_when_it_moves() -> None:
    outlook = dataclasses.replace(IDLE, running_left=(500, 300, 900, 250), waiting_ahead=6)
    rejection = admit(10, 10, None, outlook)
    assert rejection is not None
    assert (rejection.reason, rejection.retry_after_s) == ("queue_full", 5)


@given(
    st.integers(0, 10**6),
    st.floats(1e-12, 1e6),
    st.lists(st.integers(1, 10**5), max_size=20),
    st.integers(0, 300),
    st.integers(1, 20),
)
def test_predictions_are_finite_and_grow_with_the_line(
    ahead: int, rate: float, left: list[int], waiting: int, slots: int
) -> None:
    outlook = Outlook(ahead, 10, rate, left[:slots], waiting, slots, 100.0, 0.02)
    longer = dataclasses.replace(outlook, prefill_ahead=ahead + 100, waiting_ahead=waiting + 1)
    assert 0 < predicted_ttft_s(outlook) <= predicted_ttft_s(longer)


def test_a_bucket_allows_a_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(2.0, 10.0)
    assert bucket.take(10, 0.0) == 0.0
    assert bucket.take(1, 0.0) == pytest.approx(0.5)
    assert bucket.take(1, 0.5) == 0.0
    assert bucket.take(1, 0.2) > 0, "time that runs backwards fills nothing"
    assert bucket.take(100, 5.5) == 0.0, "more than a burst is let through by a full bucket"
    assert bucket.take(1, 10.5) == pytest.approx(40.5)
    bucket.give_back(95, 10.5)
    assert bucket.level(1e9) == 10.0
    with pytest.raises(ValueError, match="lets nothing through"):
        TokenBucket(0.0, 1.0)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 5)), max_size=50))
def test_a_bucket_never_lets_more_through_than_burst_and_rate(asks: list[tuple[float, float]]) -> None:
    bucket, now, taken = TokenBucket(3.0, 7.0), 0.0, 0.0
    for amount, pause in asks:
        now += pause
        if bucket.take(min(amount, 7.0), now) == 0.0:
            taken += min(amount, 7.0)
    assert taken <= 7.0 + 3.0 * now + 1e-6


def test_a_client_is_held_to_each_of_its_limits() -> None:
    ledger, limits = ClientLedger(), ClientLimits(requests_per_minute=3, tokens_per_minute=600, concurrency=2)
    assert ledger.begin("a", limits, 100, 0.0) is None
    assert ledger.begin("a", limits, 100, 0.0) is None
    third = ledger.begin("a", limits, 100, 0.0)
    assert third is not None
    assert third.reason == "concurrency"
    assert ledger.begin("b", limits, 100, 0.0) is None, "another client has its own account"
    ledger.end("a", 0, 1.0)
    tokens = ledger.begin("a", limits, 500, 1.0)
    assert tokens == Rejection("tokens_per_minute", "this key may use 600 tokens a minute", 9)
    assert ledger.begin("a", limits, 300, 1.0) is None
    ledger.end("a", 300, 1.0)
    requests = ledger.begin("a", limits, 1, 1.0)
    assert requests is not None
    assert (requests.reason, requests.retry_after_s) == ("requests_per_minute", 19)
    assert ledger.begin("a", limits, 300, 21.0) is None


def test_accounts_are_forgotten_when_they_are_as_good_as_new() -> None:
    ledger, limits = ClientLedger(), ClientLimits(requests_per_minute=60)
    for i in range(1000):
        assert ledger.begin(str(i), limits, 1, 0.0) is None
        if i:
            ledger.end(str(i), 0, 0.0)
    ledger.forget_idle(0.5)
    assert len(ledger) == 1000
    ledger.forget_idle(1.0)
    assert len(ledger) == 1, "the one that runs is kept"


def test_no_limits_and_limits_that_cannot_be() -> None:
    ledger = ClientLedger()
    for _ in range(100):
        assert ledger.begin("a", ClientLimits(), 10**9, 0.0) is None
    with pytest.raises(ValueError, match="concurrency is 0"):
        ClientLimits(concurrency=0)
