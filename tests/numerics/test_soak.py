"""A short soak of random batches on every commit, a long one on a schedule; and the soak sees what it looks for."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from numerics import soak

SEED = 20240607


@pytest.fixture(scope="module")
def expected() -> soak.Expected:
    return soak.Expected()


def test_random_batches_have_the_reference_s_logits(expected: soak.Expected) -> None:
    """One round with each model: every format."""
    played = list(itertools.islice(soak.rounds(SEED, expected), len(soak.POOL)))
    document = soak.report(SEED, played, 0.0)
    assert document["failures"] == []
    totals = document["totals"]
    assert {case["model"] for case in document["cases"]} == set(soak.POOL)
    assert totals["logits_compared"] > 20_000
    assert min(totals["ended"], totals["cancelled"], totals["preempted"], totals["shared_prefixes"]) > 10


def test_a_round_can_be_played_again(expected: soak.Expected) -> None:
    first, again = (soak.Player(SEED, 1, expected).play(5) for _ in range(2))
    assert first == again


def test_one_wrong_value_is_seen(expected: soak.Expected) -> None:
    player = soak.Player(SEED, 0, expected)
    _, digests = expected.of(player.round.model)
    right, digests[0][-1] = digests[0][-1], "wrong"
    try:
        mismatches = player.play(40).mismatches
    finally:
        digests[0][-1] = right
    assert mismatches
    assert all(text.startswith(f"script 0, position {soak.LONGEST - 1}, ") for text in mismatches)


@pytest.mark.scheduled
@pytest.mark.timeout(1200)
def test_ten_minutes(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    command = [sys.executable, soak.__file__, "--minutes", "10", "--seed", "2", "--json", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(out.read_text())["totals"]["mismatches"] == 0
