"""What a step will take, learned from what steps took.

    seconds = fixed + prefill * tokens + decode * rows + decode_kv * bytes read by decode rows
                    + prefill_kv * bytes seen by prompt tokens

Weighted least squares of the relative error, without negative coefficients. Old steps count less (a CPU's speed
changes with its neighbours), outliers count little (a step during which the process was stopped says nothing).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_MEMORY = 0.99  # weight of a step after each further one: about 100 steps are remembered
_FIRST_STEPS = 16  # these are believed whatever they say, and push the guess out quickly
_FIRST_MEMORY = 0.7
_SWEEPS = 3  # of coordinate descent after each step; the solution moves little between steps
_OUTLIER = 2.5  # times the usual error; a larger error counts in proportion less

# Fixed, per prompt token, per decode row, per KV byte of decode rows and of prompts: the guess before the first step.
_GUESS = (0.015, 0.002, 0.0005, 1e-10, 2.5e-11)

# Prompt tokens of the first step; twice as many in each further one. By the guess a large model would take seconds.
_FIRST_CHUNK = 32

# How many steps' worth of trust the guess keeps for ever. Only for the bytes: they follow from memory bandwidth, which
# varies little between machines, and in ordinary steps they are too few to tell their cost from noise.
_TRUST = (0.0, 0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a step computes. Bytes are of keys and values: each row counts all that it sees."""

    prefill_tokens: int = 0
    decode_rows: int = 0
    decode_kv_bytes: int = 0
    prefill_kv_bytes: int = 0

    def features(self) -> tuple[float, float, float, float, float]:
        """The terms of the model, in the order of the coefficients."""
        return (1.0, self.prefill_tokens, self.decode_rows, self.decode_kv_bytes, self.prefill_kv_bytes)


class StepCost:
    """A cost model that is fitted step by step. Begins with a guess: a model of half a billion weights on two cores."""

    def __init__(self) -> None:
        self._coefficients = list(_GUESS)
        size = len(self._coefficients)
        self._products = [[0.0] * size for _ in range(size)]  # sums of weight * feature * feature
        self._targets = [0.0] * size  # sums of weight * feature * seconds
        self._usual_error = 0.5
        self._observed = 0
        # The guess counts like a few steps of each kind, until real ones replace it.
        for work in (StepWork(0, 1), StepWork(0, 16, 2**27), StepWork(64, 0, 0, 2**25), StepWork(256, 4, 2**25, 2**29)):
            self._add(work, self.predict(work), 0.05 / self.predict(work) ** 2)

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Seconds: fixed, per prefill token, per decode row, per KV byte of decode rows, per KV byte of prefill."""
        return tuple(self._coefficients)

    @property
    def trusted_tokens(self) -> int:
        """Most prompt tokens of a step: few before the first steps have shown how fast this model is here."""
        return _FIRST_CHUNK << min(self._observed, 16)

    @property
    def fixed_s(self) -> float:
        """What a step takes before its first row."""
        return self._coefficients[0]

    def predict(self, work: StepWork) -> float:
        """Seconds of a step."""
        return sum(c * f for c, f in zip(self._coefficients, work.features(), strict=True))

    def row_s(self, kv_bytes: int) -> float:
        """Seconds that one more decode row adds."""
        return self._coefficients[2] + self._coefficients[3] * kv_bytes

    def prefill_s(self, count: int, position: int, bytes_per_token: int) -> float:
        """Seconds that `count` prompt tokens from `position` on add."""
        return self._coefficients[1] * count + self._coefficients[4] * seen_bytes(count, position, bytes_per_token)

    def prefill_within(self, seconds: float, position: int, bytes_per_token: int) -> int:
        """The most prompt tokens from `position` on that add at most `seconds`."""
        if seconds <= 0:
            return 0
        square = self._coefficients[4] * bytes_per_token / 2
        linear = self._coefficients[1] + square * (2 * position + 1)
        if linear <= 0:
            return 2**31
        # square n² + linear n = seconds, in the form that is exact for a square near 0
        return min(2**31, int(2 * seconds / (linear + math.sqrt(linear * linear + 4 * square * seconds))))

    def observe(self, work: StepWork, seconds: float) -> None:
        """Learns from a step. Times that no clock can mean are ignored."""
        if not 0 < seconds < math.inf:
            return
        self._observed += 1
        predicted = max(self.predict(work), 1e-6)
        error = abs(seconds / predicted - 1)
        memory, weight = _MEMORY, 1.0
        if self._observed <= _FIRST_STEPS:
            memory = _FIRST_MEMORY
        elif error > _OUTLIER * self._usual_error:
            weight = _OUTLIER * self._usual_error / error
        self._usual_error += 0.05 * (min(error, 4 * self._usual_error) - self._usual_error)
        self._usual_error = max(self._usual_error, 0.01)
        for row in self._products:
            for i in range(len(row)):
                row[i] *= memory
        self._targets = [value * memory for value in self._targets]
        # Errors count relative to the prediction: relative to the time itself, slow steps would count too little.
        self._add(work, seconds, weight / (predicted * predicted))
        self._solve()

    def _add(self, work: StepWork, seconds: float, weight: float) -> None:
        features = work.features()
        for i, feature in enumerate(features):
            if feature:
                scaled = weight * feature
                self._targets[i] += scaled * seconds
                row = self._products[i]
                for j, other in enumerate(features):
                    row[j] += scaled * other

    def _solve(self) -> None:
        """Coordinate descent; a coefficient that no remembered step speaks of stays as it is."""
        values = self._coefficients
        for _ in range(_SWEEPS):
            for i, row in enumerate(self._products):
                if row[i] * _GUESS[i] * _GUESS[i] > 1e-12 or _TRUST[i]:
                    trust = _TRUST[i] / (_GUESS[i] * _GUESS[i])
                    rest = self._targets[i] - sum(map(float.__mul__, row, values)) + row[i] * values[i]
                    values[i] = max(0.0, (rest + trust * _GUESS[i]) / (row[i] + trust))


def seen_bytes(count: int, position: int, bytes_per_token: int) -> int:
    """Bytes of keys and values that `count` tokens from `position` on see, each one its own position included."""
    return bytes_per_token * (count * position + count * (count + 1) // 2)
