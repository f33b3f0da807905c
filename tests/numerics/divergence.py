"""How far one model's next-token distributions are from another's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from numerics.float64_reference import log_softmax

# Where the reference's two best tokens are closer than this (nats), either may win by rounding alone.
DECIDED_GAP = 0.1


class Divergence:
    """KL(reference || other) and agreement of the best token, collected over positions."""

    def __init__(self) -> None:
        self._kl: list[float] = []
        self._decided = 0
        self._agreed = 0

    def add(self, reference: NDArray[np.float64], other: NDArray[np.floating]) -> None:
        """Adds positions: logits of both, [rows, vocab]."""
        expected = log_softmax(reference)
        actual = log_softmax(other.astype(np.float64))
        self._kl.extend(np.einsum("ij,ij->i", np.exp(expected), expected - actual).tolist())
        best = np.argmax(expected, axis=1)
        top_two = np.partition(expected, -2, axis=1)[:, -2:]
        decided = top_two[:, 1] - top_two[:, 0] > DECIDED_GAP
        self._decided += int(decided.sum())
        self._agreed += int((decided & (best == np.argmax(actual, axis=1))).sum())

    @property
    def positions(self) -> int:
        return len(self._kl)

    @property
    def mean_kl(self) -> float:
        """In nats per position."""
        return float(np.mean(self._kl))

    @property
    def top1_agreement(self) -> float:
        """The fraction of decided positions at which both models put the same token first."""
        return self._agreed / self._decided

    @property
    def decided_positions(self) -> int:
        return self._decided
