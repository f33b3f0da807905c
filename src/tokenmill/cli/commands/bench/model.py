"""`tokenmill bench model`: a model's prefill and decode under the roofline of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenmill.cli import bench_options, options

Prefill = Annotated[str, typer.Option("--prefill", metavar="N,N…", help="Lengths of prompts; '' measures none.")]
Decode = Annotated[str, typer.Option("--decode", metavar="N,N…", help="Sequences that decode together; '': none.")]
Context = Annotated[str, typer.Option("--context", metavar="N,N…", help="Keys that each decoding sequence sees.")]
StepTokens = Annotated[int, typer.Option("--step-tokens", min=1, help="Most prompt tokens of one step.")]


def command(
    model: options.Model = options.DEFAULT_MODEL,
    prefill: Prefill = "128,512",
    decode: Decode = "1,2,4,8,16",
    context: Context = "512",
    step_tokens: StepTokens = 256,
    threads: options.Threads = None,
    set_: bench_options.KernelSet = None,
    repeats: bench_options.Repeats = 5,
    seconds: bench_options.Seconds = 1.0,
    memory: bench_options.Memory = None,
    json: bench_options.JsonFile = None,
    plot: bench_options.Plot = None,
) -> None:
    """Time prefill and decode of a model through the engine's own step.

    A row gives tokens/s, what part of the roofline that is, and where the time goes. Limits of the machine are
    measured in the same run. Ctrl-C prints what was measured so far.

    **Examples**

    - `tokenmill bench model smollm2-135m`
    - `tokenmill bench model model.gguf --prefill '' --decode 1,16 --context 512,8192`
    - `tokenmill bench model model.gguf --json after.json --plot roofline.png`
    """
    from tokenmill.cli.bench import finish, progress_of
    from tokenmill.cli.progress import shown_progress
    from tokenmill.engine.bench.model import ModelBenchOptions, bench_model
    from tokenmill.weights.fetch import fetch

    bench_options.check_plot(plot)
    chosen = ModelBenchOptions(
        prefill=bench_options.numbers("--prefill", prefill),
        decode=bench_options.numbers("--decode", decode),
        contexts=bench_options.numbers("--context", context),
        prefill_tokens=step_tokens,
        threads=threads,
        kernel_set=set_,
        repeats=repeats,
        seconds=seconds,
        cold_bytes=memory << 20 if memory else None,
    )
    with shown_progress() as pulling:
        path = fetch(model, pulling)
    with progress_of(chosen.cases) as progress:
        report = bench_model(path, chosen, progress, progress.on_row)
    finish(report, json, plot)
