"""Which kernel set an x86 CPU gets: the choice and its refusals on CPUs that this machine is not.

qemu's user-mode emulation runs this interpreter with the features of the named CPU (it knows AVX2 and FMA, but not
AVX-512).
"""

from __future__ import annotations

import json
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


COMMAND = "from tokenmill.cli.entry import run; run()"


def on_cpu(cpu: str, code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    assert QEMU is not None
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TOKENMILL_")}
    return subprocess.run(
        [QEMU, "-cpu", cpu, sys.executable, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env=clean | environment,
    )


def selection(cpu: str, forced: str = "") -> str:
    """What the start-up gate says on `cpu`, the self-test included."""
    done = on_cpu(cpu, TESTED, forced)
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


def test_the_commands_refuse_with_what_is_missing_and_what_to_do() -> None:
    refused = on_cpu("Nehalem", COMMAND, "explain")
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert "x86_avx2 (lacks avx, avx2, fma, f16c)" in refused.stderr
    assert "TOKENMILL_KERNELS=reference" in refused.stderr
    assert "Traceback" not in refused.stderr

    forced = on_cpu("Nehalem", COMMAND, "explain", TOKENMILL_KERNELS="x86_avx2")
    assert forced.returncode == 2
    assert "kernel set 'x86_avx2' cannot run here" in forced.stderr
    assert "the choices here are: " in forced.stderr
    assert "Traceback" not in forced.stderr


def test_explain_on_an_old_cpu_says_what_each_set_lacks() -> None:
    explained = on_cpu("Nehalem", COMMAND, "explain", "--json", TOKENMILL_KERNELS="reference")
    assert explained.returncode == 0, explained.stderr
    machine = json.loads(explained.stdout)["machine"]
    assert not any(feature["usable"] for feature in machine["features"])
    whys = {entry["name"]: entry["why"] for entry in machine["kernel_sets"]}
    assert whys["x86_avx2"] == "this CPU lacks avx, avx2, fma and f16c"
    assert whys["reference"] == "forced by TOKENMILL_KERNELS"
