"""How far one model's next-token distributions are from another's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
        rows = np.arange(len(reference))
        best = np.argmax(reference, axis=1)
        largest = reference[rows, best]
        weight = np.exp(reference - largest[:, None])
        total = weight.sum(axis=1)
        actual = other.astype(np.float64)
        actual_best = np.argmax(actual, axis=1)
        # sum_i p_i (log p_i - log q_i), p = weight / total; written so that few arrays of this size are made.
        log_p_shift = largest + np.log(total)
        mean_gap = (np.einsum("ij,ij->i", weight, reference) - np.einsum("ij,ij->i", weight, actual)) / total
        actual -= actual[rows, actual_best][:, None]
        log_q_shift = other[rows, actual_best].astype(np.float64) + np.log(np.exp(actual, out=actual).sum(axis=1))
        self._kl.extend((mean_gap - log_p_shift + log_q_shift).tolist())

        weight[rows, best] = 0.0
        decided = -np.log(weight.max(axis=1)) > DECIDED_GAP
        self._decided += int(decided.sum())
        self._agreed += int((decided & (best == actual_best)).sum())

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
