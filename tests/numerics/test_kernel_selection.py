"""Which kernel set an x86 CPU gets: the choice and its refusals on CPUs that this machine is not.

qemu's user-mode emulation runs this interpreter with the features of the named CPU (it knows AVX2 and FMA, but not
AVX-512).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys

import pytest

QEMU = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")

pytestmark = [
    pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="selection on x86 CPUs"),
    pytest.mark.skipif(QEMU is None, reason="needs qemu-user-static"),
]

TESTED = """
import sys
from tokenmill.engine.self_test import tested_kernel_set
from tokenmill.vocabulary.errors import KernelSetError
try:
    print("selected", tested_kernel_set(sys.argv[1] or None))
except KernelSetError as error:
    print("refused", error)
"""


def selection(cpu: str, forced: str = "") -> str:
    """What the start-up gate says on `cpu`, the self-test included."""
    assert QEMU is not None
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TOKENMILL_")}
    done = subprocess.run(
        [QEMU, "-cpu", cpu, sys.executable, "-c", TESTED, forced],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_haswell_gets_avx2() -> None:
    assert selection("Haswell") == "selected x86_avx2\n"


def test_a_cpu_without_avx2_is_refused_and_told_what_it_lacks() -> None:
    said = selection("Nehalem")
    assert said.startswith("refused")
    assert "x86_avx2 (lacks avx, avx2, fma, f16c)" in said
    assert "TOKENMILL_KERNELS=reference" in said


def test_one_missing_feature_is_enough_to_refuse() -> None:
    said = selection("Haswell,-f16c")
    assert said.startswith("refused")
    assert "x86_avx2 (lacks f16c)" in said


def test_the_reference_runs_anywhere_when_forced() -> None:
    assert selection("Nehalem", "reference") == "selected reference\n"


def test_a_forced_set_that_cannot_run_is_refused() -> None:
    said = selection("Nehalem", "x86_avx2")
    assert said.startswith("refused")
    assert "lacks avx, avx2, fma, f16c" in said
