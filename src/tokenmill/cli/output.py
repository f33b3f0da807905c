"""Results on stdout: JSON for machines, rich for people."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def to_jsonable(value: Any) -> Any:
    """Dataclasses, mappings and sequences as plain JSON values. Numbers that JSON does not have become null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_jsonable(item) for item in value]
    if isinstance(value, (Enum, Path)):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    json.dump(to_jsonable(value), sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def stdout_console() -> Console:
    """For tables and panels. A pipe gets them without colour, and wide enough not to be cut."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def facts_table(title: str) -> Table:
    """An empty two-column table of names and values, to be filled with add_row."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE, show_header=False, padding=(0, 1)
    )
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def printable(text: str) -> str:
    """Text that cannot steer a terminal: control characters but newline and tab are shown as escapes.

    What a model says, or what its file holds, comes from strangers.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def human_bytes(count: float) -> str:
    """Bytes with a binary unit and three significant digits, such as "93.5 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1000 or unit == "TiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def human_seconds(seconds: float) -> str:
    """A duration such as "12.3 ms" or "1.84 s"; "-" where there was nothing to measure."""
    if not math.isfinite(seconds):
        return "-"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def number_ranges(numbers: tuple[int, ...]) -> str:
    """CPU numbers as the kernel writes them, such as "0-3,8"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)
