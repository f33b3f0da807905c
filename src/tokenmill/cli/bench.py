"""What all benchmarks do around the measurement: progress, table, JSON, plot."""

from __future__ import annotations

import json as json_library
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tokenmill.cli.output import stdout_console, to_jsonable

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from tokenmill.vocabulary.bench_report import BenchReport, Row

_LOG_EVERY_S = 10.0


class CaseProgress(Protocol):
    """Receives the course of a run; also what loading a model reports to (weights.progress.Progress)."""

    def stage(self, label: str, total_bytes: int | None) -> None:
        """Something begins that comes before the cases."""

    def advance(self, nbytes: int) -> None:
        """It goes on."""

    def on_row(self, row: Row) -> None:
        """A case is done."""


@contextmanager
def progress_of(cases: int) -> Iterator[CaseProgress]:
    """Tells on stderr how many cases are done: a bar on a terminal, a line now and then in a log."""
    if not sys.stderr.isatty():
        yield _LogLines(cases)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar, cases)


class _Bar:
    """One bar over the cases; its label says what is being done."""

    def __init__(self, bar: RichProgress, cases: int) -> None:
        self._bar = bar
        self._task = bar.add_task("Measuring the machine's limits", total=cases)

    def stage(self, label: str, total_bytes: int | None) -> None:  # noqa: ARG002 (the bar counts cases, not bytes)
        """Shows the label."""
        self._bar.update(self._task, description=label)

    def advance(self, nbytes: int) -> None:
        """Nothing to show: the bar counts cases."""

    def on_row(self, row: Row) -> None:
        """One case more."""
        self._bar.update(self._task, advance=1, description=describe(row))


class _LogLines:
    """A line for the first case, and one every few seconds."""

    def __init__(self, cases: int) -> None:
        self._cases = cases
        self._done = 0
        self._said = -math.inf

    def stage(self, label: str, total_bytes: int | None) -> None:
        """Not worth a line."""

    def advance(self, nbytes: int) -> None:
        """Not worth a line."""

    def on_row(self, row: Row) -> None:
        """Prints how far the run is, unless it did so a moment ago."""
        self._done += 1
        if time.monotonic() - self._said >= _LOG_EVERY_S:
            self._said = time.monotonic()
            sys.stderr.write(f"{self._done} of {self._cases}: {describe(row)}\n")
            sys.stderr.flush()


def describe(row: Row) -> str:
    """A row as one would say it, such as "matmul Q4_0, tokens 16"."""
    parts = [str(value) if isinstance(value, str) else f"{key} {value}" for key, value in row.parameters.items()]
    return f"{row.name} {', '.join(parts)}"


def finish(report: BenchReport, json: Path | None, plot: Path | None) -> None:
    """Writes what was asked for; then, for a run that was interrupted, ends as Ctrl-C does.

    Raises:
        KeyboardInterrupt: the run was interrupted.
    """
    document = json_library.dumps(to_jsonable(report), indent=2, ensure_ascii=False) + "\n"
    if json is not None and str(json) == "-":
        sys.stdout.write(document)
    else:
        from tokenmill.cli.bench_view import show_report

        show_report(stdout_console(), report)
        if json is not None:
            json.write_text(document, encoding="utf-8")
    if plot is not None:
        from tokenmill.cli.bench_plot import draw_roofline

        draw_roofline(report, plot)
    if not report.complete:
        raise KeyboardInterrupt
