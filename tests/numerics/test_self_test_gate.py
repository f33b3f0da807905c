"""A kernel that computes something else than the reference stops the start, and the error names it."""

from __future__ import annotations

import pytest

from tokenmill import _native
from tokenmill.engine import self_test
from tokenmill.vocabulary.errors import KernelSetError


def usable_sets() -> list[str]:
    return [str(entry["name"]) for entry in _native.kernel_sets() if entry["usable"]]


@pytest.mark.parametrize("kernel_set", usable_sets())
def test_a_sound_set_passes(kernel_set: str) -> None:
    assert self_test.tested_kernel_set(kernel_set) == kernel_set


@pytest.mark.parametrize("function", ["matmul_q4_1", "matmul_q6_k", "rms_norm", "attention_block", "pack_panel"])
@pytest.mark.parametrize("kernel_set", usable_sets())
def test_a_wrong_kernel_stops_the_start(kernel_set: str, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENMILL_TEST_BREAK_KERNEL", function)
    with pytest.raises(KernelSetError) as caught:
        self_test.tested_kernel_set(kernel_set)
    assert function in str(caught.value)
    assert kernel_set in str(caught.value)
