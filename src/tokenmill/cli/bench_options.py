"""Options that the benchmarks share, and lists of numbers on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokenmill.vocabulary.errors import RequestError

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON; - is standard output.")
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw the roofline: FILE.png or FILE.svg (needs tokenmill[plots])."),
]
KernelSet = Annotated[
    str | None, typer.Option("--set", metavar="NAME", help="Kernel set. Default: the one that the engine would take.")
]
Seconds = Annotated[float, typer.Option("--seconds", min=0.0, max=60.0, help="Time for each case, at least.")]
Memory = Annotated[
    int | None,
    typer.Option("--memory", metavar="MIB", min=1, help="Memory that is read in turn. Default: well above the caches."),
]
Repeats = Annotated[int, typer.Option("--repeats", min=1, max=1000, help="Runs of each case, at least.")]


def numbers(option: str, text: str) -> tuple[int, ...]:
    """Numbers such as "1,2,16"; an empty text is none.

    Raises:
        RequestError: something else, or a number below 1; the message names the option.
    """
    try:
        values = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        values = (0,)
    if any(value < 1 for value in values):
        raise RequestError("is no list of numbers from 1 on", where=f"{option} {text}", hint="write it like 1,2,16")
    return values


def check_plot(plot: Path | None) -> None:
    """Refuses what could not be drawn before anything is measured.

    Raises:
        RequestError: another kind of file than PNG or SVG, or matplotlib is not installed.
    """
    if plot is None:
        return
    if plot.suffix.lower() not in (".png", ".svg"):
        raise RequestError("is neither .png nor .svg", where=f"--plot {plot}")
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise RequestError("--plot needs matplotlib", hint="pip install 'tokenmill[plots]'")
