"""What all benchmarks do around the measurement: progress, table, JSON, plot."""

from __future__ import annotations

import json as json_library
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.cli.output import stdout_console, to_jsonable

if TYPE_CHECKING:
    from tokenmill.vocabulary.bench_report import BenchReport, Row

_LOG_EVERY_S = 10.0


@contextmanager
def progress_of(cases: int) -> Iterator[Callable[[Row], None]]:
    """Tells on stderr how many cases are done: a bar on a terminal, a line now and then in a log."""
    if not sys.stderr.isatty():
        yield _log_lines(cases)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Measuring the machine's limits", total=cases)
        yield lambda row: bar.update(task, advance=1, description=describe(row))


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


def _log_lines(cases: int) -> Callable[[Row], None]:
    done = 0
    said = time.monotonic() - _LOG_EVERY_S

    def on_row(row: Row) -> None:
        nonlocal done, said
        done += 1
        if time.monotonic() - said >= _LOG_EVERY_S:
            said = time.monotonic()
            sys.stderr.write(f"{done} of {cases}: {describe(row)}\n")
            sys.stderr.flush()

    return on_row
