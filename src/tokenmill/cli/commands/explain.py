"""`tokenmill explain`: shows which code runs here and why."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenmill.cli import options

Model = Annotated[
    str | None, typer.Argument(metavar="[MODEL]", help="Also show what this model becomes: formats, kernels, memory.")
]
Tensors = Annotated[bool, typer.Option("--tensors", help="One line per tensor instead of one per format.")]


def command(
    model: Model = None,
    tensors: Tensors = False,
    threads: options.Threads = None,
    numa: options.NumaPolicy = options.AUTO_NUMA,
    lock_memory: options.LockMemory = False,
    json: options.Json = False,
) -> None:
    """Show the CPU's features, the kernel set that runs and why not a better one, threads and memory.

    The chosen set is tested against the reference before anything is printed; exit code 1 if it differs.
    `TOKENMILL_KERNELS=NAME` forces a set. `--threads`, `--numa` and `--lock-memory` mean what they mean to `serve`.

    **Examples**

    - `tokenmill explain`
    - `tokenmill explain smollm2-135m --tensors`
    - `TOKENMILL_KERNELS=reference tokenmill explain --json`
    """
    import os

    from tokenmill.cli.explain import explain_machine, explain_model
    from tokenmill.cli.explain_view import show_machine, show_model
    from tokenmill.cli.output import print_json, stdout_console
    from tokenmill.cli.progress import shown_progress
    from tokenmill.engine.options import EngineOptions
    from tokenmill.weights.fetch import fetch

    with shown_progress() as progress:
        path = fetch(model, progress) if model else None
    engine = EngineOptions(threads=threads, numa=numa, lock_memory=lock_memory)
    machine = explain_machine(os.environ.get("TOKENMILL_KERNELS"), engine)
    explained = explain_model(path, machine, engine) if path else None
    if json:
        print_json({"machine": machine, "model": explained})
    else:
        console = stdout_console()
        show_machine(console, machine)
        if explained:
            show_model(console, explained, every_tensor=tensors)
    if machine.self_test_failures:
        raise typer.Exit(1)
