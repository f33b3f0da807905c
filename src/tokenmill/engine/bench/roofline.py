"""The roofline: no work takes less time than its bytes at the read rate, nor than its products at their rate.

Williams, Waterman, Patterson: Roofline: An Insightful Visual Performance Model, CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """What has to be done: bytes that must be read, and multiply-adds by the kind of number that is multiplied."""

    nbytes: float
    multiply_adds: Mapping[str, float]  # by the name of the limit: "int8", "fp32"


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time of some work, and the limit that sets it."""

    seconds: float
    limit: str


def least_time(work: Work, rates: Mapping[str, float]) -> Bound | None:
    """max(bytes / read rate, sum of multiply-adds / their rates).

    Args:
        work: what has to be done.
        rates: per second, by limit: "read" in bytes, the others in multiply-adds.

    Returns:
        The bound, or None when a rate that the work needs is not known.
    """
    if "read" not in rates or any(kind not in rates for kind, count in work.multiply_adds.items() if count):
        return None
    parts = {kind: count / rates[kind] for kind, count in work.multiply_adds.items() if count}
    reading, computing = work.nbytes / rates["read"], sum(parts.values())
    if reading >= computing:
        return Bound(reading, "read")
    return Bound(computing, max(parts, key=lambda kind: parts[kind]))
