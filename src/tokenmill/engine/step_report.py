"""What one engine step did, for whoever measures: metrics, traces, the demo's table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenmill.scheduling.scheduler import SchedulerState


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step, told on the engine's thread right after it: observers must be quick and must not raise.

    Attributes:
        seconds: wall time of the forward pass and sampling.
        phase_seconds: the same by phase, as the native module measured it.
        prefill_tokens: rows that belonged to prompts (or to what a preempted sequence computes again).
        decode_tokens: rows of sequences that were decoding.
        state: the scheduler's counts after the step.
    """

    seconds: float
    phase_seconds: Mapping[str, float]
    prefill_tokens: int
    decode_tokens: int
    state: SchedulerState
