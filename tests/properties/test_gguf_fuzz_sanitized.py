"""The fuzz test in full, with native code under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.mark.scheduled
@pytest.mark.timeout(4 * 3600)
def test_twenty_thousand_mutated_files() -> None:
    """The script builds a sanitized package beside the installed one and preloads libasan for its tests."""
    script = Path(__file__).parents[1] / "sanitized_fuzz.sh"
    done = subprocess.run([script, "20000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
