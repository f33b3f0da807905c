"""The measure itself, against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from numerics.divergence import DECIDED_GAP, Divergence


def log_softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return values - np.log(np.exp(values).sum(axis=1, keepdims=True))


def test_definition() -> None:
    rng = np.random.default_rng(0)
    reference = 4.0 * rng.standard_normal((60, 500))
    other = (reference + 0.3 * rng.standard_normal(reference.shape)).astype(np.float32)
    divergence = Divergence()
    divergence.add(reference[:25], other[:25])
    divergence.add(reference[25:], other[25:])

    p, q = log_softmax(reference), log_softmax(other.astype(np.float64))
    assert divergence.positions == 60
    assert divergence.mean_kl == pytest.approx((np.exp(p) * (p - q)).sum(axis=1).mean(), rel=1e-9)
    top_two = np.sort(p, axis=1)[:, -2:]
    decided = top_two[:, 1] - top_two[:, 0] > DECIDED_GAP
    agreed = decided & (p.argmax(axis=1) == q.argmax(axis=1))
    assert divergence.decided_positions == decided.sum()
    assert divergence.top1_agreement == pytest.approx(agreed.sum() / decided.sum())


def test_equal_distributions_with_shifted_logits() -> None:
    logits = np.array([[1.0, 3.0, -2.0], [700.0, 0.0, -700.0]])
    divergence = Divergence()
    divergence.add(logits, (logits + 8.0).astype(np.float32))
    assert divergence.mean_kl == pytest.approx(0.0, abs=1e-12)
    assert divergence.top1_agreement == 1.0
