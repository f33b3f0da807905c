"""A scheduler that tells all that went in and what it planned, line by line, and the replay of such a record.

A record is JSON Lines: first the limits, then each call with its time. The same calls make the same plans, because the
scheduler has no other input; so a record shows what a scheduler did, and whether a changed one would do the same.
Records hold token ids of prompts and answers.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from tokenmill.scheduling.batch_plan import BatchPlan, SequenceResult, StepResults
from tokenmill.scheduling.limits import SchedulerLimits
from tokenmill.scheduling.scheduler import Scheduler, SequenceEvents
from tokenmill.vocabulary.errors import OverloadedError, RequestError
from tokenmill.vocabulary.generation import GenerationRequest, SamplingParams

Json = dict[str, Any]


class RecordedScheduler(Scheduler):
    """Gives each call to `write` as a line without its end; `write` must not raise."""

    def __init__(self, limits: SchedulerLimits, stop_tokens: AbstractSet[int], write: Callable[[str], None]) -> None:
        super().__init__(limits, stop_tokens)
        self._write = write
        self._line({"call": "start", "limits": dataclasses.asdict(limits), "stop_tokens": sorted(stop_tokens)})

    def add(self, request: GenerationRequest, now_s: float) -> int:
        """Also records a refusal: whether one is refused depends on the state."""
        sequence_id = None
        try:
            sequence_id = super().add(request, now_s)
        finally:
            self._line({"call": "add", "s": now_s, "request": dataclasses.asdict(request), "id": sequence_id})
        return sequence_id

    def cancel(self, sequence_id: int) -> bool:
        """As in Scheduler."""
        self._line({"call": "cancel", "id": sequence_id})
        return super().cancel(sequence_id)

    def plan(self, now_s: float) -> BatchPlan | None:
        """As in Scheduler."""
        plan = super().plan(now_s)
        self._line({"call": "plan", "s": now_s, "plan": _plan_as_json(plan)})
        return plan

    def commit(self, results: StepResults, time_s: float) -> list[SequenceEvents]:
        """As in Scheduler."""
        answers = [[r.sequence_id, r.token_id, r.error] for r in results.results]
        self._line({"call": "commit", "s": time_s, "results": answers})
        return super().commit(results, time_s)

    def clear(self) -> list[int]:
        """As in Scheduler."""
        self._line({"call": "clear"})
        return super().clear()

    def _line(self, value: Json) -> None:
        self._write(json.dumps(value, separators=(",", ":")))


def replay(lines: Iterable[str]) -> Iterator[tuple[Json | None, Json | None]]:
    """Puts a record through a new scheduler: for each plan, the one on record and the one made now.

    A line that was cut off by the end of the process ends the replay.

    Raises:
        ValueError: it is no record, or the scheduler has left the recorded path (another id, another refusal).
    """
    scheduler: Scheduler | None = None
    for line in lines:
        if not line.endswith("\n"):
            return
        value = json.loads(line)
        call = value["call"]
        if call == "start":
            scheduler = Scheduler(SchedulerLimits(**value["limits"]), frozenset(value["stop_tokens"]))
        elif scheduler is None:
            raise ValueError("a record begins with its limits")
        elif call == "plan":
            yield value["plan"], _plan_as_json(scheduler.plan(value["s"]))
        elif call == "add":
            if (added := _add(scheduler, value)) != value["id"]:
                raise ValueError(f"the record has sequence {value['id']} where the replay has {added}")
        elif call == "cancel":
            scheduler.cancel(value["id"])
        elif call == "commit":
            results = tuple(SequenceResult(i, token_id=token, error=error) for i, token, error in value["results"])
            scheduler.commit(StepResults(results), value["s"])
        else:
            scheduler.clear()


def _add(scheduler: Scheduler, value: Json) -> int | None:
    asked = value["request"]
    sampling = asked["sampling"]
    sampling["logit_bias"] = {int(token): bias for token, bias in sampling["logit_bias"].items()}
    asked["sampling"] = SamplingParams(**sampling)
    for name in ("prompt_tokens", "stop_strings"):
        asked[name] = tuple(asked[name])
    try:
        return scheduler.add(GenerationRequest(**asked), value["s"])
    except (OverloadedError, RequestError):
        return None


def _plan_as_json(plan: BatchPlan | None) -> Json | None:
    if plan is None:
        return None
    return {
        "steps": [
            [s.sequence_id, s.position, list(s.tokens), list(s.pages), s.sampling is not None] for s in plan.steps
        ],
        "zero_pages": list(plan.zero_pages),
        "predicted_s": plan.predicted_s,
        "starts": [[s.sequence_id, s.queue_s] for s in plan.starts],
        "deferred": plan.deferred,
    }
