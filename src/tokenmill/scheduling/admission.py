"""Whether a request may wait: the queue's bound, and its first token's predicted time against its deadline."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why not, in one word for metrics and in a sentence for the client, and when to try again."""

    reason: str
    what: str
    retry_after_s: int


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a newcomer would find. Tokens are those still to be computed; seconds are predictions.

    Attributes:
        prefill_ahead: prompt tokens of running sequences, and of waiting ones that are served before it.
        prefill_own: its own, without what the prefix cache holds.
        prefill_tokens_per_s: how fast prompts are computed beside the replies that run.
        running_left: output tokens that each running sequence is expected still to give.
        waiting_ahead: how many wait and are served before it.
        slots: sequences that may run at once.
        typical_output: tokens of a typical reply.
        decode_step_s: a step while all slots decode.
    """

    prefill_ahead: int
    prefill_own: int
    prefill_tokens_per_s: float
    running_left: Sequence[int]
    waiting_ahead: int
    slots: int
    typical_output: float
    decode_step_s: float


def predicted_slot_s(outlook: Outlook) -> float:
    """Seconds until a slot is free for the newcomer: those that wait before it take each slot that falls free first."""
    ends: list[float] = [*outlook.running_left, *[0] * (outlook.slots - len(outlook.running_left))]
    heapq.heapify(ends)
    for _ in range(outlook.waiting_ahead):
        heapq.heapreplace(ends, ends[0] + outlook.typical_output)
    return ends[0] * outlook.decode_step_s


def predicted_ttft_s(outlook: Outlook) -> float:
    """Seconds to the newcomer's first token: to a slot, or to the end of all prompts before its own; then its own."""
    rate = max(outlook.prefill_tokens_per_s, 1e-9)
    return max(predicted_slot_s(outlook), outlook.prefill_ahead / rate) + outlook.prefill_own / rate


def admit(alive: int, most_alive: int, deadline_s: float | None, outlook: Outlook) -> Rejection | None:
    """None admits.

    Args:
        alive: sequences that run or wait.
        most_alive: the bound for these.
        deadline_s: how soon the first token is wanted; None: whenever.
        outlook: what it would find.
    """
    if alive >= most_alive:
        # The queue moves up when the first of the running replies ends.
        wait = min(outlook.running_left, default=0) * outlook.decode_step_s
        return Rejection(
            "queue_full", f"{alive} sequences are running or waiting, which is the limit", _whole_seconds(wait)
        )
    if deadline_s is None:
        return None
    predicted = predicted_ttft_s(outlook)
    if predicted <= deadline_s:
        return None
    return Rejection(
        "deadline",
        f"the first token is expected after {predicted:.1f} s, but is wanted within {deadline_s:.1f} s",
        _whole_seconds(predicted - deadline_s),
    )


def _whole_seconds(seconds: float) -> int:
    return max(1, min(3600, math.ceil(seconds)))
