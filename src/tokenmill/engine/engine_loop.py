"""The engine's thread: plan, run, commit, deliver; asleep when there is nothing to do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from tokenmill.engine.generation import Generation
from tokenmill.engine.step_report import StepReport, step_report
from tokenmill.scheduling.batch_plan import BatchPlan, StepResults
from tokenmill.scheduling.limits import SchedulerState
from tokenmill.scheduling.scheduler import Scheduler, SequenceEvents
from tokenmill.vocabulary.errors import UnavailableError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, TokenEvent

logger = logging.getLogger(__name__)


class Runner(Protocol):
    """Carries out a plan. Called from the engine's thread only."""

    def run(self, plan: BatchPlan) -> StepResults:
        """Raises only when the engine as a whole cannot go on; one sequence's trouble is SequenceResult.error."""


class EngineLoop:
    """One thread that drives a runner by a scheduler. All methods may be called from any thread.

    A failing runner ends every generation with an error and makes the loop refuse further ones; it never hangs them.

    Args:
        scheduler: guarded by this loop from now on.
        runner: sees one plan at a time.
        on_step: told about each step, on the engine's thread.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        *,
        on_step: Callable[[StepReport], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._on_step = on_step
        self._clock = clock
        self._changed = threading.Condition()  # guards everything below, and the scheduler
        self._generations: dict[int, Generation] = {}
        self._closing = False
        self._planned_s = 0.0  # when the last step was planned; of the engine's thread alone
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="tokenmill-engine", daemon=True)
        self._thread.start()

    @property
    def state(self) -> SchedulerState:
        """Counts of the scheduler at this moment."""
        with self._changed:
            return self._scheduler.state

    @property
    def failure(self) -> str:
        """Why the loop ended by itself; empty while it is healthy."""
        return self._failure

    def submit(self, request: GenerationRequest) -> Generation:
        """Queues a request.

        Raises:
            RequestError: it can never be served.
            OverloadedError: the queue is full, or the first token would come too late.
            UnavailableError: the loop is closed or has failed.
        """
        with self._changed:
            if self._closing or self._failure:
                raise UnavailableError(f"the engine has failed: {self._failure}" if self._failure else "engine closed")
            now = self._clock()
            sequence_id = self._scheduler.add(request, now)
            generation = Generation(request, now, lambda: self._cancel(sequence_id))
            self._generations[sequence_id] = generation
            self._changed.notify()
        return generation

    def close(self) -> None:
        """Ends the step that is running, then every generation (FinishReason.SHUTDOWN), then the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _cancel(self, sequence_id: int) -> None:
        with self._changed:
            generation = self._generations.pop(sequence_id, None)
            if generation is None:
                return
            self._scheduler.cancel(sequence_id)
        generation.deliver([TokenEvent(None, self._clock(), finish_reason=FinishReason.CANCELLED)])

    def _run(self) -> None:
        reason, failure = FinishReason.SHUTDOWN, ""
        try:
            while (plan := self._next_plan()) is not None:
                self._step(plan)
        except Exception as error:
            logger.exception("The engine stops: a step failed")
            reason, failure = FinishReason.ERROR, f"{type(error).__name__}: {error}"
            self._failure = failure
        with self._changed:
            self._closing = True
            self._scheduler.clear()
            left = list(self._generations.values())
            self._generations.clear()
        end = TokenEvent(None, self._clock(), finish_reason=reason, error=failure)
        for generation in left:
            generation.deliver([end])

    def _next_plan(self) -> BatchPlan | None:
        """Sleeps until there is a step to run; None when the loop is to end."""
        with self._changed:
            while not self._closing:
                now = self._clock()
                plan = self._scheduler.plan(now)
                if plan is not None:
                    self._planned_s = now
                    return plan
                due = self._scheduler.due_s()
                self._changed.wait(None if due is None else max(0.0, due - now))
        return None

    def _step(self, plan: BatchPlan) -> None:
        results = self._runner.run(plan)
        end = self._clock()
        with self._changed:
            told = self._scheduler.commit(results, end)
            readers = [self._reader(item) for item in told]
            state = self._scheduler.state
        for generation, item in zip(readers, told, strict=True):
            if generation is not None:
                generation.deliver(item.events)
        if self._on_step is not None:
            self._on_step(step_report(plan, results, end - self._planned_s, state))

    def _reader(self, item: SequenceEvents) -> Generation | None:
        if item.events[-1].finish_reason is not None:
            return self._generations.pop(item.sequence_id, None)
        return self._generations.get(item.sequence_id)
