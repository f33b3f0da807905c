"""A rate limit that allows a burst. Time is an argument, in seconds of any clock that does not run backwards."""

from __future__ import annotations


class TokenBucket:
    """Fills at `per_s` up to `burst`; begins full. A time before the last one counts as the last one."""

    def __init__(self, per_s: float, burst: float) -> None:
        if per_s <= 0 or burst <= 0:
            raise ValueError(f"a bucket that fills at {per_s}/s up to {burst} lets nothing through")
        self.per_s = per_s
        self.burst = burst
        self._level = burst
        self._at_s: float | None = None

    def level(self, now_s: float) -> float:
        """What could be taken now; below zero after more than a full bucket was taken."""
        if self._at_s is None:
            self._at_s = now_s
        elif now_s > self._at_s:
            self._level = min(self.burst, self._level + (now_s - self._at_s) * self.per_s)
            self._at_s = now_s
        return self._level

    def wait_s(self, amount: float, now_s: float) -> float:
        """Seconds until `amount` can be taken, 0 when it can be now; what exceeds the burst waits for a full bucket."""
        lacking = min(amount, self.burst) - self.level(now_s)
        return max(0.0, lacking / self.per_s)

    def take(self, amount: float, now_s: float) -> float:
        """Takes `amount` and returns 0, or takes nothing and returns the seconds to wait."""
        wait = self.wait_s(amount, now_s)
        if wait == 0.0:
            self._level -= amount
        return wait

    def give_back(self, amount: float, now_s: float) -> None:
        """Returns what was taken and not used."""
        self._level = min(self.burst, self.level(now_s) + amount)
