"""What one engine step did, for whoever measures: metrics, traces, the demo's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tokenmill.scheduling.batch_plan import BatchPlan, StepResults
from tokenmill.scheduling.limits import SchedulerState


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step, told on the engine's thread right after it: observers must be quick and must not raise.

    Attributes:
        seconds: wall time from the plan to the results.
        phase_seconds: the same by phase, as the native module measured it.
        prefill_tokens: rows that belonged to prompts (or to what a preempted sequence computes again).
        decode_tokens: rows of sequences that were decoding.
        state: the scheduler's counts after the step.
        kind: what the rows were.
        batch_size: sequences in the step.
        output_tokens: tokens drawn; each has been given to its reader when this is told.
        queue_seconds: of each sequence that was computed for the first time, how long it had waited.
        predicted_seconds: what the scheduler had expected.
        deferred: sequences that could decode and were left out, for their rate limit or their cost.
    """

    seconds: float
    phase_seconds: Mapping[str, float]
    prefill_tokens: int
    decode_tokens: int
    state: SchedulerState
    kind: Literal["prefill", "decode", "mixed"]
    batch_size: int
    output_tokens: int
    queue_seconds: tuple[float, ...]
    predicted_seconds: float
    deferred: int


def step_report(plan: BatchPlan, results: StepResults, seconds: float, state: SchedulerState) -> StepReport:
    """What a plan and its answer say."""
    decode = sum(1 for step in plan.steps if len(step.tokens) == 1 and step.sampling is not None)
    prefill = plan.token_count - decode
    return StepReport(
        seconds=seconds,
        phase_seconds=results.phase_seconds,
        prefill_tokens=prefill,
        decode_tokens=decode,
        state=state,
        kind="mixed" if prefill and decode else "prefill" if prefill else "decode",
        batch_size=len(plan.steps),
        output_tokens=sum(1 for result in results.results if result.token_id is not None),
        queue_seconds=tuple(start.queue_s for start in plan.starts),
        predicted_seconds=plan.predicted_s,
        deferred=plan.deferred,
    )
