"""A measured case with its rates and its place under the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenmill.engine.bench.limits import rates_of
from tokenmill.engine.bench.roofline import Work, least_time
from tokenmill.engine.bench.spread import spread_of
from tokenmill.vocabulary.bench_report import Figure, Limit, Parameter, Row


def judged_row(
    name: str,
    parameters: Mapping[str, Parameter],
    times: Sequence[float],
    work: Work,
    limits: Sequence[Limit],
    *,
    tokens: int = 0,
    bytes_read: str = "weights or KV",
    phases: Mapping[str, float] | None = None,
) -> Row:
    """The row of a case.

    Args:
        name: of the row.
        parameters: with the name, its identity.
        times: seconds of each repeat, at least one.
        work: of one repeat.
        limits: measured in the same run.
        tokens: of one repeat; 0 leaves the rate of tokens out.
        bytes_read: what `work.nbytes` counts, for the formula.
        phases: share of the time by part, where it is known.
    """
    spread = spread_of(times)
    multiply_adds = sum(work.multiply_adds.values())
    bound = least_time(work, rates_of(limits))
    figures = (
        *((Figure("tokens", tokens / spread.median, "tokens/s", "derived", "tokens / median"),) if tokens else ()),
        Figure("multiply-adds", multiply_adds / spread.median / 1e9, "GMAC/s", "derived", "multiply-adds / median"),
        Figure("read", work.nbytes / spread.median / 1e9, "GB/s", "derived", f"bytes of {bytes_read} / median"),
        Figure("intensity", multiply_adds / work.nbytes, "MAC/byte", "derived", "multiply-adds / bytes"),
    )
    return Row(
        name=name,
        parameters=parameters,
        time=spread,
        figures=figures,
        limit=bound.limit if bound else "",
        fraction=bound.seconds / spread.median if bound else None,
        phases=phases or {},
    )
