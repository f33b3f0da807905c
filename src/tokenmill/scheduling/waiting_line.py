"""The sequences that wait, in the order in which they are to be served."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from tokenmill.scheduling.sequence import ScheduledSequence

# One level of priority is worth this much waiting. The order of two sequences never changes, and a sequence can be
# overtaken only by those that come within (difference of priorities) times this: so nothing waits for ever.
PRIORITY_S = 30.0


def service_key(arrival_s: float, priority: int, sequence_id: int) -> tuple[float, int]:
    """Smallest first: by arrival, with priority counted as time already waited."""
    return (arrival_s - priority * PRIORITY_S, sequence_id)


class WaitingLine:
    """Ordered by ScheduledSequence.key."""

    def __init__(self) -> None:
        self._line: list[ScheduledSequence] = []

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[ScheduledSequence]:
        return iter(self._line)

    @property
    def head(self) -> ScheduledSequence:
        """Who is next."""
        return self._line[0]

    def put(self, sequence: ScheduledSequence) -> None:
        """Takes its place in the line."""
        bisect.insort(self._line, sequence, key=lambda s: s.key)

    def take(self) -> ScheduledSequence:
        """Removes and returns the head."""
        return self._line.pop(0)

    def remove(self, sequence_id: int) -> bool:
        """Leaves the line; False when it is not in it."""
        for index, sequence in enumerate(self._line):
            if sequence.sequence_id == sequence_id:
                del self._line[index]
                return True
        return False

    def clear(self) -> None:
        """Sends all away."""
        self._line.clear()
