"""A machine made of a cost model: steps take what a formula says, with noise, and no time passes for the test."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from tokenmill.scheduling.batch_plan import BatchPlan, SequenceResult, StepResults
from tokenmill.scheduling.limits import SchedulerLimits
from tokenmill.scheduling.scheduler import Scheduler
from tokenmill.scheduling.step_cost import seen_bytes
from tokenmill.vocabulary.generation import GenerationRequest, SamplingParams

KV_BYTES = 12_288  # per token, of a model with 24 layers, 2 KV heads of 64, in fp16


@dataclass
class Chat:
    """One request's life, in simulated seconds."""

    submitted_s: float
    request: GenerationRequest
    token_s: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.submitted_s

    @property
    def gaps_s(self) -> list[float]:
        return [b - a for a, b in pairwise(self.token_s)]


class SimulatedMachine:
    """Drives a scheduler. Times as of half a billion weights on two cores unless told otherwise."""

    def __init__(
        self,
        limits: SchedulerLimits,
        *,
        fixed_s: float = 0.013,
        prefill_s: float = 0.0016,
        decode_s: float = 0.0006,
        bytes_per_s: float = 9e9,
        noise: float = 0.1,
        seed: int = 1,
    ) -> None:
        self.scheduler = Scheduler(limits)
        self.now_s = 0.0
        self.chats: dict[int, Chat] = {}
        self.plans: list[BatchPlan] = []
        self._times = (fixed_s, prefill_s, decode_s, bytes_per_s)
        self._noise = noise
        self._random = random.Random(seed)

    def submit(self, prompt: int, output: int, **options: object) -> Chat:
        """A prompt of `prompt` random tokens."""
        tokens = tuple(self._random.randrange(1000) for _ in range(prompt))
        request = GenerationRequest(tokens, SamplingParams(), output, **options)  # type: ignore[arg-type]
        chat = Chat(self.now_s, request)
        self.chats[self.scheduler.add(request, self.now_s)] = chat
        return chat

    def true_seconds(self, plan: BatchPlan) -> float:
        """What the machine takes for a plan, without noise."""
        fixed, prefill, decode, bandwidth = self._times
        seconds = fixed
        for step in plan.steps:
            count = len(step.tokens)
            seen = seen_bytes(count, step.position, KV_BYTES)
            # A chunk reads its keys once for many rows: a quarter of the bytes' time stands for its arithmetic.
            seconds += decode + seen / bandwidth if count == 1 else prefill * count + seen / bandwidth / 4
        return seconds

    def step(self) -> bool:
        """One step; False when there is none to do."""
        plan = self.scheduler.plan(self.now_s)
        if plan is None:
            due = self.scheduler.due_s()
            self.now_s = max(self.now_s, due or 0.0)
            return due is not None
        self.plans.append(plan)
        self.now_s += self.true_seconds(plan) * max(0.3, self._random.gauss(1, self._noise))
        results = tuple(
            SequenceResult(s.sequence_id, None if s.sampling is None else self._random.randrange(1000))
            for s in plan.steps
        )
        for item in self.scheduler.commit(StepResults(results), self.now_s):
            chat = self.chats[item.sequence_id]
            chat.token_s += [event.time_s for event in item.events]
            chat.ended = item.events[-1].finish_reason is not None
        return True

    def keep_up(self, slots: int, until_s: float, prompt: Callable[[], int], output: Callable[[], int]) -> list[Chat]:
        """Closed-loop clients: each sends the next chat when its last has ended. Returns those that ended."""
        mine = [self.submit(prompt(), output()) for _ in range(slots)]
        current = list(mine)
        while self.now_s < until_s:
            self.step()
            for index, chat in enumerate(current):
                if chat.ended:
                    current[index] = self.submit(prompt(), output())
                    mine.append(current[index])
        return [chat for chat in mine if chat.ended]


def percentile(values: list[float], percent: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
