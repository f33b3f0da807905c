"""Draws a report's roofline. The only file that imports matplotlib, and only when a plot is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenmill.vocabulary.bench_report import BenchReport, Row

_COLOURS = ("int8", "int8_multiply", "fp32")


def draw_roofline(report: BenchReport, path: Path) -> None:
    """One point for each row that has an intensity, under the limits measured in the same run.

    Args:
        report: with at least the limit "read" for the slope.
        path: .png or .svg.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot()
    points = [row for row in report.rows if row.figure("intensity") and row.figure("multiply-adds")]
    intensities = [_value(row, "intensity") for row in points] or [1.0]
    low, high = min(intensities) / 2, max(intensities) * 2
    _draw_limits(axes, report, low, high)
    for label, rows in _series(points).items():
        axes.plot(
            [_value(row, "intensity") for row in rows],
            [_value(row, "multiply-adds") for row in rows],
            marker="o",
            markersize=4,
            linewidth=0.8,
            label=label,
        )
    axes.set(xscale="log", yscale="log", xlabel="multiply-adds per byte read", ylabel="10⁹ multiply-adds per second")
    axes.set_title(f"{report.kernel_set}, {report.threads} threads, {report.host.cpu.model_name}")
    axes.grid(visible=True, which="both", linewidth=0.3)
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(path, dpi=150)


def _draw_limits(axes: Any, report: BenchReport, low: float, high: float) -> None:
    read = report.limit("read")
    if read is not None:
        ends = [low, high]
        axes.plot(ends, [read.rate * end / 1e9 for end in ends], color="black", linewidth=1.2, label="read bandwidth")
    for name, style in zip(_COLOURS, ("-", ":", "--"), strict=True):
        limit = report.limit(name)
        if limit is not None:
            axes.axhline(limit.rate / 1e9, color="black", linewidth=1.2, linestyle=style, label=limit.how)


def _series(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by what a reader would join with a line: a weight format, or a kind of attention or step."""
    series: dict[str, list[Row]] = {}
    for row in rows:
        series.setdefault(str(row.parameters.get("format", row.name)), []).append(row)
    return series


def _value(row: Row, name: str) -> float:
    figure = row.figure(name)
    return figure.value if figure is not None else 0.0
