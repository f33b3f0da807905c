"""Times a model's prefill and decode through the engine's own step, next to limits of the machine in the same run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenmill import _native
from tokenmill.engine.bench.judged_row import judged_row
from tokenmill.engine.bench.limits import cold_bytes, drift_notes, measure_limits, open_bench
from tokenmill.engine.bench.model_work import Chunk, model_facts, step_work, sum_of
from tokenmill.engine.bench.roofline import Work
from tokenmill.engine.bench.session import OnRow, Session
from tokenmill.engine.load import KERNELS_VARIABLE, EngineParts, load_parts
from tokenmill.engine.model_runner import ModelRunner
from tokenmill.engine.options import EngineOptions
from tokenmill.engine.placement import place
from tokenmill.engine.self_test import tested_kernel_set
from tokenmill.models import plan_model
from tokenmill.scheduling.batch_plan import BatchPlan, SequenceStep
from tokenmill.scheduling.page_ledger import pages_for
from tokenmill.vocabulary.bench_report import BenchReport, Limit, Parameter, Row
from tokenmill.vocabulary.errors import RequestError, TokenmillError
from tokenmill.vocabulary.generation import SamplingParams
from tokenmill.vocabulary.layer_plan import ModelPlan
from tokenmill.vocabulary.model_file import ModelFile
from tokenmill.weights.progress import Progress
from tokenmill.weights.read_gguf import read_gguf

_MOST_REPEATS = 1000
_GREEDY = SamplingParams(temperature=0.0)


@dataclass(frozen=True, slots=True)
class ModelBenchOptions:
    """What to measure.

    Attributes:
        prefill: lengths of prompts, each computed alone from an empty context.
        decode: numbers of sequences that decode together.
        contexts: keys that each decoding sequence sees, its own included.
        prefill_tokens: most prompt tokens of one step.
        threads: None takes as many as the engine would.
        kernel_set: None takes the one that the engine would.
        repeats: of each case, at least.
        seconds: for each case, at least.
        cold_bytes: memory that limits and weights are read from in turn; None: much more than the caches hold.
    """

    prefill: tuple[int, ...] = (128, 512)
    decode: tuple[int, ...] = (1, 2, 4, 8, 16)
    contexts: tuple[int, ...] = (512,)
    prefill_tokens: int = 256
    threads: int | None = None
    kernel_set: str | None = None
    repeats: int = 5
    seconds: float = 1.0
    cold_bytes: int | None = None

    @property
    def cases(self) -> int:
        """How many rows the report will have, unless some do not fit."""
        return len(self.prefill) + len(self.decode) * len(self.contexts)


def bench_model(
    path: Path, options: ModelBenchOptions, progress: Progress | None = None, on_row: OnRow = lambda _: None
) -> BenchReport:
    """Measures limits, loads the model, then times every case; Ctrl-C ends the run with what was measured.

    Raises:
        RequestError: nothing to measure, or a context that the model cannot have.
        TokenmillError: as Engine.load.
    """
    if not options.cases:
        raise RequestError("there is nothing to measure", hint="name lengths with --prefill or batches with --decode")
    model_file = read_gguf(path)
    plan = plan_model(model_file)
    longest = max((*options.prefill, *(options.contexts if options.decode else ())))
    session = Session(_native.cpu_features())
    kernel_set = tested_kernel_set(os.environ.get(KERNELS_VARIABLE) or options.kernel_set)
    engine_options = EngineOptions(
        threads=options.threads,
        kernel_set=kernel_set,
        context_length=max(2, longest),
        max_sequences=max((1, *options.decode)),
        prefill_tokens=options.prefill_tokens,
    )
    placement = place(session.facts, engine_options, model_file.file_bytes)
    nbytes = options.cold_bytes or cold_bytes(session.facts)
    limits = measure_limits(open_bench(kernel_set, placement), nbytes, options.seconds)
    parts = load_parts(path, engine_options, progress)
    cases = _Cases(parts, model_file, plan, options, limits)
    session.collect(cases.rows(), on_row)
    drift = (
        drift_notes(limits, measure_limits(open_bench(kernel_set, placement), nbytes, options.seconds))
        if session.complete
        else ()
    )
    return session.report(
        "model",
        kernel_set=parts.info.kernel_set,
        threads=parts.info.threads,
        limits=limits,
        model=model_facts(parts.info.name, model_file, plan, parts.info.weight_bytes),
        notes=(
            *drift,
            "decode repeats one step at the end of the context; keys and values before it are zeros, whose values do "
            "not change the time",
            "a fraction is the roofline's least time (bytes of weights, keys and values at the read rate, or "
            "multiply-adds at their rates, whichever is more) divided by the time taken",
            *cases.notes,
        ),
    )


class _Cases:
    """The cases of one run, on a loaded model."""

    def __init__(
        self,
        parts: EngineParts,
        model_file: ModelFile,
        plan: ModelPlan,
        options: ModelBenchOptions,
        limits: Sequence[Limit],
    ) -> None:
        self._runner: ModelRunner = parts.runner
        self._pages = parts.info.kv_pages
        self._vocab = plan.vocab_size
        self._model_file = model_file
        self._plan = plan
        self._options = options
        self._limits = limits
        self.notes: list[str] = []

    def rows(self) -> Iterator[Row]:
        """Prefill by length, then decode by context and batch."""
        for length in self._options.prefill:
            yield self._prefill(length)
        for context in self._options.contexts:
            for batch in self._options.decode:
                if batch * pages_for(context) > self._pages:
                    self.notes.append(
                        f"decode of {batch} sequences at context {context} left out: the KV cache has no room"
                    )
                    continue
                yield self._decode(batch, context)

    def _prefill(self, length: int) -> Row:
        tokens = self._tokens(length)
        pages = tuple(range(pages_for(length)))
        size = self._options.prefill_tokens
        starts = range(0, length, size)
        plans = [
            BatchPlan(
                (
                    SequenceStep(
                        sequence_id=0,
                        tokens=tokens[start : start + size],
                        position=start,
                        pages=pages[: pages_for(min(start + size, length))],
                        sampling=_GREEDY if start + size >= length else None,
                    ),
                ),
                zero_pages=pages if start == 0 else (),
            )
            for start in starts
        ]
        chunks = [Chunk(min(size, length - start), start, drawn=1 if start + size >= length else 0) for start in starts]
        work = sum_of([step_work(self._model_file, self._plan, [chunk]) for chunk in chunks])
        return self._measure("prefill", {"tokens": length, "step_tokens": size}, plans, length, work)

    def _decode(self, batch: int, context: int) -> Row:
        each = pages_for(context)
        steps = tuple(
            SequenceStep(
                sequence_id=index,
                tokens=(self._tokens(batch)[index],),
                position=context - 1,
                pages=range(index * each, (index + 1) * each),
                sampling=_GREEDY,
            )
            for index in range(batch)
        )
        self._runner.model.zero_pages(np.arange(batch * each, dtype=np.int32))
        work = step_work(self._model_file, self._plan, [Chunk(1, context - 1)] * batch)
        return self._measure("decode", {"sequences": batch, "context": context}, [BatchPlan(steps)], batch, work)

    def _tokens(self, count: int) -> tuple[int, ...]:
        """Different tokens, the same in every run."""
        return tuple((7919 * index + 13) % self._vocab for index in range(count))

    def _measure(
        self, name: str, parameters: dict[str, Parameter], plans: Sequence[BatchPlan], tokens: int, work: Work
    ) -> Row:
        self._run(plans)  # buffers grow, threads and clocks wake up
        times: list[float] = []
        phases: dict[str, float] = {}
        while len(times) < self._options.repeats or (sum(times) < self._options.seconds and len(times) < _MOST_REPEATS):
            begin = time.perf_counter()
            seconds = self._run(plans)
            times.append(time.perf_counter() - begin)
            for phase, value in seconds.items():
                phases[phase] = phases.get(phase, 0.0) + value
        total = sum(times)
        shares = {phase: value / total for phase, value in phases.items()}
        shares["outside"] = max(0.0, 1 - sum(shares.values()))
        return judged_row(
            name, parameters, times, work, self._limits, tokens=tokens, bytes_read="weights and KV", phases=shares
        )

    def _run(self, plans: Sequence[BatchPlan]) -> dict[str, float]:
        """Runs steps; returns their seconds by phase."""
        phases: dict[str, float] = {}
        for plan in plans:
            results = self._runner.run(plan)
            errors = [result.error for result in results.results if result.error]
            if errors:
                raise TokenmillError(f"the step failed: {errors[0]}", where=str(self._model_file.path))
            for phase, seconds in results.phase_seconds.items():
                phases[phase] = phases.get(phase, 0.0) + seconds
        return phases
