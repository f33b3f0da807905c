"""From repeated measurements to a median and how sure it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tokenmill.vocabulary.bench_report import Spread

_CONFIDENCE = 0.95


def spread_of(seconds: Sequence[float]) -> Spread:
    """Median, range and the median's 95 % confidence interval; at least one value."""
    ordered = sorted(seconds)
    rank = _interval_rank(len(ordered))
    return Spread(
        median=statistics.median(ordered),
        minimum=ordered[0],
        maximum=ordered[-1],
        low=ordered[rank],
        high=ordered[-1 - rank],
        repeats=len(ordered),
    )


def _interval_rank(count: int) -> int:
    """The largest r for which [r-th smallest, r-th largest] (from 0) holds the median with 95 % confidence.

    The number of values below the true median is binomial(count, 1/2); the interval misses it when at most r are, on
    either side (David & Nagaraja, Order Statistics, section 7.1).
    """
    tail, rank = 0.0, 0
    for below in range(count // 2):
        ways = math.lgamma(count + 1) - math.lgamma(below + 1) - math.lgamma(count - below + 1)
        tail += math.exp(ways - count * math.log(2))
        if 2 * tail > 1 - _CONFIDENCE:
            break
        rank = below
    return rank
