"""Progress on stderr: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tokenmill.cli.output import human_bytes

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tokenmill.weights.progress import Progress

_LOG_EVERY_S = 5.0


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """What weights/ and engine/ report their long tasks to.

    On a terminal the bars go away at the end: what remains is what the command prints.
    """
    if not sys.stderr.isatty():
        yield _LogLines()
        return
    bars = _Bars()
    try:
        yield bars
    finally:
        bars.stop()


class _Bars:
    """One bar for each stage, the current one below the finished ones."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: TaskID | None = None

    def stage(self, label: str, total_bytes: int | None) -> None:
        """Begins a bar; without a total it only moves to show that something happens."""
        self._bar.start()  # has no effect after the first time
        if self._task is not None:
            self._bar.stop_task(self._task)
        self._task = self._bar.add_task(label, total=total_bytes)

    def advance(self, nbytes: int) -> None:
        """Moves the current bar."""
        if self._task is not None:
            self._bar.advance(self._task, nbytes)

    def stop(self) -> None:
        """Takes the bars off the screen."""
        self._bar.stop()


class _LogLines:
    """One line every few seconds; a stage that ends sooner is not worth one."""

    def __init__(self) -> None:
        self._label = ""
        self._total: int | None = None
        self._done = 0
        self._next_s = 0.0

    def stage(self, label: str, total_bytes: int | None) -> None:
        """Begins a stage."""
        self._label, self._total, self._done = label, total_bytes, 0
        self._next_s = time.monotonic() + _LOG_EVERY_S

    def advance(self, nbytes: int) -> None:
        """Prints how far the stage is, unless it did so a moment ago."""
        self._done += nbytes
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + _LOG_EVERY_S
        of_total = f" of {human_bytes(self._total)}" if self._total else ""
        sys.stderr.write(f"{self._label}: {human_bytes(self._done)}{of_total}\n")
        sys.stderr.flush()
