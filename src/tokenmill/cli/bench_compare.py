"""Compares two reports of any benchmark: ratios, and whether they are more than noise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.output import printable
from tokenmill.vocabulary.bench_report import SCHEMA_VERSION, BenchReport, Parameter, Row
from tokenmill.vocabulary.errors import RequestError
from tokenmill.vocabulary.from_document import from_document

if TYPE_CHECKING:
    from rich.console import Console


_LEAST_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Ratio:
    """One row in both reports. `ratio` is speed of B / speed of A; low and high follow from both intervals.

    Attributes:
        verdict: "faster", "slower", or "no difference seen" when the confidence intervals overlap,
            "too few repeats" where fewer than three say nothing about noise.
        failed: slower than --fail-below allows, and not by noise.
    """

    name: str
    parameters: Mapping[str, Parameter]
    ratio: float
    low: float
    high: float
    verdict: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows that both reports have; `warnings` say what makes the reports hard to compare."""

    a: str
    b: str
    ratios: tuple[Ratio, ...]
    only_a: int
    only_b: int
    warnings: tuple[str, ...]
    fail_below: float | None

    @property
    def failures(self) -> tuple[Ratio, ...]:
        """Rows that are slower than allowed."""
        return tuple(ratio for ratio in self.ratios if ratio.failed)


def read_report(path: Path) -> BenchReport:
    """Reads a report that --json wrote.

    Raises:
        RequestError: the file is no report, or one of another schema version.
        OSError: it cannot be read.
    """
    hint = "write one with `tokenmill bench kernels --json FILE`"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document.get("schema_version") if isinstance(document, dict) else None
        if version != SCHEMA_VERSION:
            raise RequestError(
                f"schema_version is {version!r}, not {SCHEMA_VERSION}: no report of this version's benchmarks",
                where=str(path),
                hint=hint,
            )
        return from_document(BenchReport, document)
    except (ValueError, UnicodeDecodeError) as error:
        raise RequestError(f"is no report of a benchmark: {error}", where=str(path), hint=hint) from error


def compare(a: BenchReport, b: BenchReport, fail_below: float | None = None) -> Comparison:
    """Joins the rows of two reports.

    Args:
        a: the run before.
        b: the run after.
        fail_below: ratios below this are failures where the intervals do not overlap.

    Raises:
        RequestError: the reports have no row in common.
    """
    after = {row.identity: row for row in b.rows}
    ratios = tuple(_ratio(row, after[row.identity], fail_below) for row in a.rows if row.identity in after)
    if not ratios:
        raise RequestError("the two reports have no row in common", hint="measure the same cases twice")
    return Comparison(
        a=_title(a),
        b=_title(b),
        ratios=ratios,
        only_a=len(a.rows) - len(ratios),
        only_b=len(b.rows) - len(ratios),
        warnings=_warnings(a, b),
        fail_below=fail_below,
    )


def _ratio(a: Row, b: Row, fail_below: float | None) -> Ratio:
    overlap = a.time.low <= b.time.high and b.time.low <= a.time.high
    few = min(a.time.repeats, b.time.repeats) < _LEAST_REPEATS
    ratio = a.time.median / b.time.median
    return Ratio(
        name=a.name,
        parameters=a.parameters,
        ratio=ratio,
        low=a.time.low / b.time.high,
        high=a.time.high / b.time.low,
        verdict="too few repeats" if few else "no difference seen" if overlap else "faster" if ratio > 1 else "slower",
        failed=fail_below is not None and not few and not overlap and ratio < fail_below,
    )


def _title(report: BenchReport) -> str:
    model = f" {report.model.name}" if report.model else ""
    return f"{report.engine} {report.version}{model}, {report.kernel_set}, {report.threads} threads, {report.created}"


def _warnings(a: BenchReport, b: BenchReport) -> tuple[str, ...]:
    warnings = [f"{name}: {report.load.busy}" for name, report in (("A", a), ("B", b)) if report.load.busy]
    if a.benchmark != b.benchmark:
        warnings.append(f"A is a benchmark of {a.benchmark}, B of {b.benchmark}")
    if a.model is not None and b.model is not None and a.model.name != b.model.name:
        warnings.append(f"different models: {a.model.name} and {b.model.name}")
    if a.host.cpu.model_name != b.host.cpu.model_name:
        warnings.append(f"different CPUs: {a.host.cpu.model_name} and {b.host.cpu.model_name}")
    for name in ("read", "int8"):
        before, after = a.limit(name), b.limit(name)
        if before is not None and after is not None and not 0.95 < after.rate / before.rate < 1.05:
            change = after.rate / before.rate
            warnings.append(f"the machine itself changed: B's limit {name} is {change:.2f} x A's")
    return tuple(warnings)


def show(console: Console, comparison: Comparison) -> None:
    """A table of ratios, and what makes them doubtful."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="speed of B / speed of A", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for name in ("row", "parameters"):
        table.add_column(name)
    table.add_column("ratio", justify="right")
    table.add_column("95 %", justify="right")
    table.add_column("verdict")
    for ratio in comparison.ratios:
        parameters = ", ".join(f"{key} {value}" for key, value in ratio.parameters.items())
        names = (escape(printable(text)) for text in (ratio.name, parameters))
        failed = f" (below {comparison.fail_below:g})" if ratio.failed else ""
        style = {"faster": "green", "slower": "red"}.get(ratio.verdict, "")
        interval = f"{ratio.low:.3f} … {ratio.high:.3f}"
        table.add_row(*names, f"{ratio.ratio:.3f}", interval, ratio.verdict + failed, style=style)
    # What a report says comes from a file, which anybody may have written.
    console.print(printable(f"A: {comparison.a}\nB: {comparison.b}"), markup=False)
    for warning in comparison.warnings:
        console.print(printable(f"! {warning}"), style="bold red", markup=False)
    console.print(table)
    if comparison.only_a or comparison.only_b:
        console.print(f"not compared: {comparison.only_a} rows only in A, {comparison.only_b} only in B")
