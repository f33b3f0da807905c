"""Which of the decoding sequences take part in a step, and how long the step may be.

A reply with a long context reads all its keys and values for every token: at 32k tokens it can make a step several
times longer for all its neighbours. Such a costly row takes part only as often as its share of the engine's time pays
for, and only in steps that stay within the inter-token target, where the neighbours' tail is anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenmill.scheduling.sequence import ScheduledSequence
from tokenmill.scheduling.step_cost import StepCost

# Without a target of the user's: a prompt's chunk may stretch a step to this many times what the decode rows take,
# and shorter steps than this are not worth having.
_STRETCH = 3.5
_SHORTEST_TARGET_S = 0.05

# A row is costly when reading its keys and values takes this much of the step's target, and it has this many times the
# context of cheaper rows. By default that is a fifth of what the cheaper rows take.
_COSTLY_SHARE = 0.06
_COSTLY_CONTEXT = 2.0

# A costly row that fits no step within the target comes this seldom: outside of its neighbours' 99th percentile.
_SELDOM = 128


@dataclass(frozen=True, slots=True)
class DecodeChoice:
    """The decode rows of a step.

    Attributes:
        rows: those that take part.
        costly: those among all decoding rows that count as costly, whether they take part or not.
        seconds: predicted step without prompt tokens.
        target_s: what the whole step may take.
    """

    rows: list[ScheduledSequence]
    costly: list[ScheduledSequence]
    seconds: float
    target_s: float


def step_target(base_s: float, itl_target_s: float | None) -> float:
    """How long a step with running streams may take; `base_s` is what their rows alone take."""
    return max(_SHORTEST_TARGET_S, _STRETCH * base_s) if itl_target_s is None else itl_target_s


def choose_rows(
    ready: Sequence[ScheduledSequence],
    cost: StepCost,
    bytes_per_token: int,
    itl_target_s: float | None,
    *,
    with_costly: bool = True,
) -> DecodeChoice:
    """Divides the sequences that could decode; `with_costly` False leaves costly rows to a later step."""
    seconds = [cost.row_s(len(s.tokens) * bytes_per_token) for s in ready]
    ordinary, costly = _divide(ready, seconds, cost, itl_target_s)
    base = cost.fixed_s + sum(seconds[i] for i in ordinary)
    target = step_target(base, itl_target_s)
    joined: set[int] = set()
    total = base
    for index in costly if with_costly else ():
        sequence = ready[index]
        fits = total + seconds[index] <= target and sequence.credit_s >= seconds[index]
        if fits or (sequence.passed_over >= _SELDOM and not joined):
            joined.add(index)
            total += seconds[index]
    rows = [s for i, s in enumerate(ready) if i in joined or i not in costly]
    return DecodeChoice(rows, [ready[i] for i in costly], total, target)


def settle(choice: DecodeChoice, step_s: float) -> None:
    """Books a planned step of `step_s` seconds on the costly rows: a share of it as credit, or their turn as taken."""
    if not choice.costly:
        return
    taking_part = {s.sequence_id for s in choice.rows}
    share = step_s / (len(choice.rows) + sum(s.sequence_id not in taking_part for s in choice.costly))
    for sequence in choice.costly:
        if sequence.sequence_id in taking_part:
            sequence.credit_s, sequence.passed_over = 0.0, 0
        else:
            sequence.credit_s += share
            sequence.passed_over += 1


def _divide(
    ready: Sequence[ScheduledSequence], seconds: Sequence[float], cost: StepCost, itl_target_s: float | None
) -> tuple[list[int], list[int]]:
    """Indices of ordinary and of costly rows. The cheapest row is ordinary, whatever it costs."""
    fixed_s, row_s = cost.fixed_s, cost.row_s(0)  # what every row costs makes none of them costly
    if not seconds or max(seconds) - row_s <= _COSTLY_SHARE * step_target(fixed_s, itl_target_s):
        return list(range(len(seconds))), []
    order = sorted(range(len(seconds)), key=seconds.__getitem__)
    total, context = fixed_s, 0
    for count, index in enumerate(order):
        length = len(ready[index].tokens)
        threshold = row_s + _COSTLY_SHARE * step_target(total, itl_target_s)
        if count and seconds[index] > threshold and length * count > _COSTLY_CONTEXT * context:
            return order[:count], sorted(order[count:])
        total += seconds[index]
        context += length
    return order, []
