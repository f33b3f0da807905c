"""Carries out the scheduler's plans on a native model: plain values in and out, arrays between."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tokenmill import _native
from tokenmill.engine.memory_use import lock_refused
from tokenmill.engine.options import MemoryUse
from tokenmill.engine.placement import Placement
from tokenmill.scheduling.batch_plan import BatchPlan, History, SequenceResult, SequenceStep, StepResults
from tokenmill.vocabulary.errors import CapacityError, UnsupportedModelError
from tokenmill.vocabulary.generation import SamplingParams, TokenLogprob
from tokenmill.vocabulary.layer_plan import ModelPlan

NONFINITE = "a value of the computation was not finite: the model's weights do not suit this input"


def open_model(plan: ModelPlan, *, kernel_set: str, placement: Placement, weight_bytes: int = 0) -> _native.Model:
    """An empty native model for a plan, with its threads running.

    Args:
        plan: what to compute.
        kernel_set: a usable set's name.
        placement: how many threads, and where they and the memory go.
        weight_bytes: about what one packed copy will take; 0 where unknown.

    Raises:
        UnsupportedModelError: native code cannot execute the plan; the message names why.
        CapacityError: the operating system refuses the threads or the memory.
    """
    try:
        return _native.Model(
            dataclasses.asdict(plan),
            kernel_set=kernel_set,
            threads=placement.threads,
            cpus=placement.thread_cpus or None,
            thread_copies=placement.thread_copies,
            weight_nodes=placement.weight_nodes,
            kv_nodes=placement.kv_nodes,
            expected_weight_bytes=weight_bytes,
        )
    except ValueError as error:
        raise UnsupportedModelError(str(error)) from error
    except (OSError, MemoryError) as error:
        raise CapacityError(f"the engine's threads cannot be started: {error}") from error


def allocate_kv(model: _native.Model, pages: int) -> int:
    """Allocates KV pages; returns their bytes.

    Raises:
        CapacityError: there is no memory for them.
    """
    try:
        return model.allocate_kv(pages)
    except MemoryError as error:
        wanted = pages * model.kv_bytes_per_page
        raise CapacityError(f"no memory for a KV cache of {wanted:,} bytes", hint="ask for less of it") from error


def lock_memory(model: _native.Model, wanted_bytes: int) -> int:
    """Keeps weights and KV pages in memory; returns their bytes.

    Raises:
        CapacityError: the kernel refuses.
    """
    try:
        return model.lock_memory()
    except OSError as error:
        raise lock_refused(wanted_bytes, f"the kernel says: {error.strerror}") from error


def memory_use(report: _native.MemoryReport) -> MemoryUse:
    """What the native model says of its memory."""
    reasons = (report.pool_refusal, report.policy_refusal)
    return MemoryUse(
        reserved_bytes=report.pool_bytes,
        transparent_bytes=report.transparent_bytes,
        node_bytes=dict(report.node_bytes),
        why_not_more="; ".join(reason for reason in reasons if reason),
    )


def sampler_config(sampling: SamplingParams) -> _native.SamplerConfig:
    """The native form of sampling parameters. Raises ValueError for a value out of range."""
    return _native.SamplerConfig(
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=list(sampling.logit_bias.items()),
        seed=sampling.seed % 2**64,
        logprobs=-1 if sampling.logprobs is None else sampling.logprobs,
    )


class _TokenBuffer:
    """A sequence's growing token list as an array, so that a step converts only what is new."""

    def __init__(self) -> None:
        self._tokens = np.empty(256, np.int32)
        self._count = 0

    def update(self, tokens: Sequence[int]) -> NDArray[np.int32]:
        """All tokens; `tokens` must begin with those of the last call."""
        count = len(tokens)
        if count > len(self._tokens):
            grown = np.empty(2 * count, np.int32)
            grown[: self._count] = self._tokens[: self._count]
            self._tokens = grown
        self._tokens[self._count : count] = tokens[self._count : count]
        self._count = count
        return self._tokens[:count]


@dataclasses.dataclass(slots=True)
class _SequenceState:
    """What is kept of a sequence between the steps in which it draws tokens."""

    sampling: SamplingParams
    config: _native.SamplerConfig
    history: _TokenBuffer | None = None
    error: str = ""  # native code refuses the parameters: this sequence ends, its neighbours do not

    def native_history(self, history: History | None) -> tuple[NDArray[np.int32], int] | None:
        if history is None:
            return None
        if self.history is None:
            self.history = _TokenBuffer()
        return self.history.update(history.tokens), history.prompt_length


class ModelRunner:
    """Runs batch plans on a loaded model. Driven by one thread.

    Args:
        model: weights loaded, KV pages allocated.
    """

    def __init__(self, model: _native.Model) -> None:
        self._model = model
        self._sequences: dict[int, _SequenceState] = {}

    @property
    def model(self) -> _native.Model:
        """The native model, for its facts."""
        return self._model

    def run(self, plan: BatchPlan) -> StepResults:
        """Zeroes the new pages, computes the step, and gives each sequence its result in the plan's order.

        Raises:
            ValueError: the plan contradicts itself or the model's limits (a bug of the caller).
            MemoryError: no memory for the step's buffers.
        """
        if plan.zero_pages:
            self._model.zero_pages(np.array(plan.zero_pages, np.int32))
        steps = plan.steps
        starts = _offsets(len(step.tokens) for step in steps)
        drawing = [index for index, step in enumerate(steps) if step.sampling is not None]
        states = [self._state_of(steps[index]) for index in drawing]
        result = self._model.step(
            _concatenate((step.tokens for step in steps), int(starts[-1])),
            starts,
            np.array([step.position for step in steps], np.int32),
            _concatenate((step.pages for step in steps), sum(len(step.pages) for step in steps)),
            _offsets(len(step.pages) for step in steps),
            starts[1:][drawing] - np.int32(1),
            [state.config for state in states],
            [state.native_history(steps[index].history) for state, index in zip(states, drawing, strict=True)],
        )
        self._sequences = {steps[index].sequence_id: state for state, index in zip(states, drawing, strict=True)}
        drawn = {index: row for row, index in enumerate(drawing)}
        nonfinite = result.nonfinite.tolist()
        token_ids = result.token_ids.tolist()
        errors = {index: state.error for state, index in zip(states, drawing, strict=True) if state.error}
        errors |= {index: NONFINITE for index in range(len(steps)) if nonfinite[index]}
        results = tuple(
            SequenceResult(step.sequence_id, error=errors[index])
            if index in errors
            else _drawn_result(step, result, drawn.get(index), token_ids)
            for index, step in enumerate(steps)
        )
        return StepResults(results, result.phase_seconds)

    def _state_of(self, step: SequenceStep) -> _SequenceState:
        state = self._sequences.get(step.sequence_id)
        if step.sampling is None:
            msg = "a sequence that draws no token has no sampling state"
            raise ValueError(msg)
        if state is None or state.sampling is not step.sampling:
            try:
                state = _SequenceState(step.sampling, sampler_config(step.sampling))
            except (ValueError, TypeError) as error:
                state = _SequenceState(step.sampling, sampler_config(SamplingParams()), error=str(error))
        return state


def _drawn_result(
    step: SequenceStep, result: _native.StepResult, row: int | None, token_ids: list[int]
) -> SequenceResult:
    if row is None or step.sampling is None:
        return SequenceResult(step.sequence_id)
    if step.sampling.logprobs is None:
        return SequenceResult(step.sequence_id, token_ids[row])
    top = tuple(
        TokenLogprob(token, logprob)
        for token, logprob in zip(result.top_ids[row].tolist(), result.top_logprobs[row].tolist(), strict=True)
    )
    return SequenceResult(step.sequence_id, token_ids[row], float(result.logprobs[row]), top)


def _offsets(counts: Iterable[int]) -> NDArray[np.int32]:
    return np.cumsum([0, *counts], dtype=np.int32)


def _concatenate(parts: Iterable[Sequence[int]], count: int) -> NDArray[np.int32]:
    return np.fromiter(chain.from_iterable(parts), np.int32, count)
