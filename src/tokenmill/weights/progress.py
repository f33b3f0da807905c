"""How work that takes more than a second tells whoever waits for it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the course of a long task; called from the thread that runs it."""

    def stage(self, label: str, total_bytes: int | None) -> None:
        """A new stage begins and the one before is over. `total_bytes` is None when the amount is not known."""

    def advance(self, nbytes: int) -> None:
        """`nbytes` more of the current stage are done; negative when some must be done again."""


class SilentProgress:
    """Tells nobody."""

    def stage(self, label: str, total_bytes: int | None) -> None:
        """Ignores the stage."""

    def advance(self, nbytes: int) -> None:
        """Ignores the step."""
