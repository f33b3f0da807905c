"""Times each kernel of a set next to the limits of the machine. What differs from the reference is not timed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenmill import _native
from tokenmill.engine.bench.judged_row import judged_row
from tokenmill.engine.bench.limits import cold_bytes, drift_notes, measure_limits, open_bench
from tokenmill.engine.bench.roofline import Work
from tokenmill.engine.bench.session import OnRow, Session
from tokenmill.engine.bench.spread import spread_of
from tokenmill.engine.load import KERNELS_VARIABLE
from tokenmill.engine.options import EngineOptions
from tokenmill.engine.placement import place
from tokenmill.engine.self_test import tested_kernel_set
from tokenmill.vocabulary.bench_report import BenchReport, Figure, Limit, Parameter, Row
from tokenmill.vocabulary.errors import KernelSetError, RequestError
from tokenmill.weights.formats import FORMAT_BY_NAME, supported_names

_FLOAT_FORMATS = ("F32", "F16", "BF16")
_KV_HEADS, _GROUP, _HEAD_DIM = 8, 4, 128
_PREFILL_TOKENS = 8  # with 4 heads a group: the engine's tile of 32 queries
_ROW_WIDTH = 4096


@dataclass(frozen=True, slots=True)
class KernelBenchOptions:
    """What to measure.

    Attributes:
        kernel_set: its name; None takes the one that the engine would.
        formats: weight formats by name; none: all.
        tokens: rows of activations that a matrix product is measured with.
        rows: output features of the matrix.
        columns: input features of the matrix.
        contexts: keys that attention is measured with.
        threads: None takes as many as the engine would.
        repeats: of each case, at least.
        seconds: for each case, at least.
        cold_bytes: memory that limits and weights are read from in turn; None: much more than the caches hold.
    """

    kernel_set: str | None = None
    formats: tuple[str, ...] = ()
    tokens: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 64)
    rows: int = 4096
    columns: int = 4096
    contexts: tuple[int, ...] = (512, 8192)
    threads: int | None = None
    repeats: int = 7
    seconds: float = 0.15
    cold_bytes: int | None = None

    @property
    def matmul_formats(self) -> tuple[str, ...]:
        """The formats to measure, in the order of the contract."""
        return self.formats or tuple(FORMAT_BY_NAME)

    @property
    def cases(self) -> int:
        """How many rows the report will have."""
        matmuls = len(self.matmul_formats) * len(self.tokens)
        return matmuls + 2 * len(self.contexts) + len(_native.row_functions())


def bench_kernels(options: KernelBenchOptions, on_row: OnRow = lambda _: None) -> BenchReport:
    """Measures limits, then every case; Ctrl-C ends the run with what was measured.

    Raises:
        RequestError: an unknown format, or a size that a format does not have.
        KernelSetError: the set cannot run here, or differs from the reference.
    """
    _check(options)
    session = Session(_native.cpu_features())
    kernel_set = tested_kernel_set(os.environ.get(KERNELS_VARIABLE) or options.kernel_set)
    placement = place(session.facts, EngineOptions(threads=options.threads), 0)
    bench = open_bench(kernel_set, placement)
    nbytes = options.cold_bytes or cold_bytes(session.facts)
    limits = measure_limits(bench, nbytes, options.seconds)
    try:
        session.collect(_rows(bench, options, limits, nbytes), on_row)
    except ValueError as error:  # a size that native code refuses; the message names it
        raise RequestError(str(error)) from error
    drift = drift_notes(limits, measure_limits(bench, nbytes, options.seconds)) if session.complete else ()
    notes = [
        *drift,
        f"weights and the decode's keys and values are read in turn from {nbytes / 1e6:.0f} MB, so that they come from "
        "memory; row functions run on one thread with data in its cache",
        "every output was equal to the reference's, bit for bit, before it was timed",
    ]
    return session.report("kernels", kernel_set=kernel_set, threads=placement.threads, limits=limits, notes=notes)


def _check(options: KernelBenchOptions) -> None:
    for name in options.formats:
        if name not in FORMAT_BY_NAME:
            raise RequestError(
                f"there is no weight format {name}", parameter="format", hint=f"one of: {supported_names()}"
            )
    for name in options.matmul_formats:
        block = max(32, FORMAT_BY_NAME[name].block_elements)
        if options.columns % block:
            raise RequestError(
                f"a matrix of {options.columns} columns cannot be {name}: its blocks have {block} elements",
                parameter="shape",
            )


def _rows(
    bench: _native.KernelBench, options: KernelBenchOptions, limits: Sequence[Limit], nbytes: int
) -> Iterator[Row]:
    for name in options.matmul_formats:
        matrix_bytes = bench.prepare_matmul(
            name, options.rows, options.columns, most_tokens=max(options.tokens), cold_bytes=nbytes
        )
        for tokens in options.tokens:
            _require_equal(bench.check_matmul(tokens))
            times = bench.time_matmul(tokens, repeats=options.repeats, seconds=options.seconds)
            kind = "fp32" if name in _FLOAT_FORMATS else "int8"
            work = Work(matrix_bytes, {kind: float(tokens * options.rows * options.columns)})
            shape: dict[str, Parameter] = {"rows": options.rows, "columns": options.columns}
            case: dict[str, Parameter] = {"format": name, "tokens": tokens}
            yield judged_row("matmul", case | shape, times, work, limits)
    for context in options.contexts:
        for name, tokens, cold in (("attention_decode", 1, nbytes), ("attention_prefill", _PREFILL_TOKENS, 0)):
            if tokens > context:
                continue
            facts = bench.prepare_attention(
                context=context, tokens=tokens, kv_heads=_KV_HEADS, group=_GROUP, head_dim=_HEAD_DIM, cold_bytes=cold
            )
            _require_equal(bench.check_attention())
            times = bench.time_attention(repeats=options.repeats, seconds=options.seconds)
            work = Work(facts["kv_bytes"], {"fp32": float(facts["multiply_adds"])})
            heads: dict[str, Parameter] = {"kv_heads": _KV_HEADS, "group": _GROUP, "head_dim": _HEAD_DIM}
            case = {"context": context, "tokens": tokens}
            yield judged_row(name, case | heads, times, work, limits)
    for name in _native.row_functions():
        elements, times = bench.time_rows(name, _ROW_WIDTH, repeats=options.repeats, seconds=options.seconds / 3)
        spread = spread_of(times)
        figure = Figure("time per element", 1e9 * spread.median / elements, "ns", "derived", "median / elements")
        yield Row(name, {"width": _ROW_WIDTH}, spread, (figure,))


def _require_equal(difference: str) -> None:
    if difference:
        raise KernelSetError(
            f"nothing is timed: the output differs from the reference: {difference}",
            hint="please report it with the output of `tokenmill explain`",
        )
