"""`tokenmill bench kernels`: each kernel's speed under the roofline of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from tokenmill.cli import bench_options, options

Format = Annotated[
    list[str] | None, typer.Option("--format", help="Weight format, such as Q4_0; repeat. Default: all.")
]
Tokens = Annotated[str, typer.Option("--tokens", metavar="N,N…", help="Tokens that a product is computed for.")]
Shape = Annotated[str, typer.Option("--shape", metavar="N,K", help="Output and input features of the matrix.")]
Context = Annotated[str, typer.Option("--context", metavar="N,N…", help="Keys of the attention; '' leaves it out.")]


def command(
    set_: bench_options.KernelSet = None,
    format_: Format = None,
    tokens: Tokens = "1,2,3,4,5,6,7,8,12,16,64",
    shape: Shape = "4096,4096",
    context: Context = "512,8192",
    threads: options.Threads = None,
    repeats: bench_options.Repeats = 7,
    seconds: bench_options.Seconds = 0.15,
    memory: bench_options.Memory = None,
    json: bench_options.JsonFile = None,
    plot: bench_options.Plot = None,
) -> None:
    """Time matrix products, attention and row functions of a kernel set.

    Limits of the machine (read bandwidth, int8 and fp32 multiply-adds) are measured in the same run; a row says what
    part of the limit that binds it reaches. Outputs must equal the reference's before they are timed. Ctrl-C prints
    what was measured so far.

    **Examples**

    - `tokenmill bench kernels`
    - `tokenmill bench kernels --format Q4_0 --format Q4_K --tokens 1,16 --context '' --plot roofline.svg`
    - `tokenmill bench kernels --set x86_avx2 --threads 1 --json avx2.json`
    """
    from tokenmill.cli.bench import finish, progress_of
    from tokenmill.engine.bench.kernels import KernelBenchOptions, bench_kernels
    from tokenmill.vocabulary.errors import RequestError

    bench_options.check_plot(plot)
    sizes = bench_options.numbers("--shape", shape)
    if len(sizes) != 2:
        raise RequestError("is not two numbers", where=f"--shape {shape}", hint="write it like 4096,11008")
    chosen = KernelBenchOptions(
        kernel_set=set_,
        formats=tuple(name.upper() for name in format_ or ()),
        tokens=bench_options.numbers("--tokens", tokens),
        rows=sizes[0],
        columns=sizes[1],
        contexts=bench_options.numbers("--context", context),
        threads=threads,
        repeats=repeats,
        seconds=seconds,
        cold_bytes=memory << 20 if memory else None,
    )
    with progress_of(chosen.cases) as progress:
        report = bench_kernels(chosen, progress.on_row)
    finish(report, json, plot)
