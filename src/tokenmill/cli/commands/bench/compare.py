"""`tokenmill bench compare`: is B faster than A, or is it noise?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tokenmill.cli import options

A = Annotated[Path, typer.Argument(metavar="A", help="Report of the run before, as --json wrote it.")]
B = Annotated[Path, typer.Argument(metavar="B", help="Report of the run after.")]
FailBelow = Annotated[
    float | None,
    typer.Option("--fail-below", min=0.0, help="Exit with 1 when a row's speed falls below this ratio, past noise."),
]


def command(a: A, b: B, fail_below: FailBelow = None, json: options.Json = False) -> None:
    """Compare two reports row by row: speed of B divided by speed of A.

    Each run's median has a 95 % confidence interval. Where the two overlap, no difference is seen. The interval
    covers noise within a run; run A and B in turn on one machine for what drifts between runs.

    **Examples**

    - `tokenmill bench compare before.json after.json`
    - `tokenmill bench compare before.json after.json --fail-below 0.97`
    """
    from tokenmill.cli.bench_compare import compare, read_report, show
    from tokenmill.cli.output import print_json, stdout_console

    comparison = compare(read_report(a), read_report(b), fail_below)
    if json:
        print_json(comparison)
    else:
        show(stdout_console(), comparison)
    if comparison.failures:
        raise typer.Exit(1)
