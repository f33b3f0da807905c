"""Draws a report's roofline. The only file that imports matplotlib, and only when a plot is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenmill.vocabulary.bench_report import BenchReport, Row

_STYLES = {"int8": "-", "int8_multiply": ":", "fp32": "--"}
_MOST_NAMED = 4  # series whose points can have names without covering each other


def draw_roofline(report: BenchReport, path: Path) -> None:
    """One point for each row that has an intensity, under the limits measured in the same run.

    Args:
        report: of any benchmark; rows without an intensity are left out.
        path: .png or .svg.
    """
    from matplotlib import color_sequences
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot()
    axes.set_prop_cycle(color=color_sequences["tab20"])  # more colours than weight formats
    points = [row for row in report.rows if row.figure("intensity") and row.figure("multiply-adds")]
    intensities = [_value(row, "intensity") for row in points] or [1.0]
    _draw_limits(axes, report, min(intensities) / 2, max(intensities) * 2)
    series = _series(points)
    for label, rows in series.items():
        across = [_value(row, "intensity") for row in rows]
        up = [_value(row, "multiply-adds") for row in rows]
        axes.plot(across, up, marker="o", markersize=4, linewidth=0.8, label=label)
        for row, x, y in zip(rows, across, up, strict=True):
            if len(series) <= _MOST_NAMED:
                axes.annotate(_point_name(row), (x, y), xytext=(3, -9), textcoords="offset points", fontsize=7)
    axes.set(xscale="log", yscale="log", xlabel="multiply-adds per byte read", ylabel="10⁹ multiply-adds per second")
    axes.set_title(f"{report.kernel_set}, {report.threads} threads, {report.host.cpu.model_name}")
    axes.grid(visible=True, which="both", linewidth=0.3)
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(path, dpi=150)


def _draw_limits(axes: Any, report: BenchReport, low: float, high: float) -> None:
    """The slope of the read rate up to the highest rate of multiply-adds, and a line for each of these."""
    ceilings = [(name, limit) for name in _STYLES if (limit := report.limit(name))]
    read = report.limit("read")
    if read is not None:
        ridge = max((limit.rate for _, limit in ceilings), default=read.rate * high) / read.rate
        ends = [low, max(low, min(high, ridge))]
        axes.plot(ends, [read.rate * end / 1e9 for end in ends], color="black", linewidth=1.2, label="read bandwidth")
    for name, limit in ceilings:
        axes.plot(
            [low, high], [limit.rate / 1e9] * 2, color="black", linewidth=1, linestyle=_STYLES[name], label=limit.how
        )


def _point_name(row: Row) -> str:
    """What tells a point from its neighbours: tokens, sequences, the context."""
    names = ("tokens", "sequences", "context")
    return ", ".join(f"{row.parameters[name]}" for name in names if name in row.parameters)


def _series(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by what a reader would join with a line: a weight format, or a kind of attention or step."""
    series: dict[str, list[Row]] = {}
    for row in rows:
        series.setdefault(str(row.parameters.get("format", row.name)), []).append(row)
    return series


def _value(row: Row, name: str) -> float:
    figure = row.figure(name)
    return figure.value if figure is not None else 0.0
