"""A library built with -ffast-math, loaded before or after tokenmill, changes no bit.

Such a library switches on flush-to-zero when it is loaded, for its thread and for every thread that this one starts.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
COMPILER = shutil.which("gcc") or shutil.which("cc")

# A model in which flush-to-zero shows: embeddings and residuals are denormals, and the norm lifts them again. Denormals
# are made and printed as bits, for NumPy's own conversions flush them.
PLAY = """
import ctypes, sys
if sys.argv[1] == "before":
    ctypes.CDLL(sys.argv[2])
import numpy as np
from numerics.batch_driver import open_tiny
from numerics.logit_hashes import pages_of, text_hash, text_script
from tiny_models import TinyModel
from tokenmill import _native

if sys.argv[1] == "after":
    ctypes.CDLL(sys.argv[2])
print("flushed" if np.float32(1e-30) * np.float32(1e-10) == 0 else "kept", _native.fp_environment_is_default())
model = TinyModel("llama", embedding=64, tied=False, formats={"token_embd": "F32"})
bits = np.random.default_rng(1).integers(1, 1 << 21, (model.vocab, model.embedding), np.uint32)
script = text_script(120)
for threads in (1, 2):
    native = open_tiny(model, sys.argv[3], threads, {"token_embd.weight": bits.tobytes()})
    native.allocate_kv(pages_of([script]))
    print(text_hash(native, script, [], 64))
print(_native.self_test(sys.argv[3]))
product = _native.matmul(sys.argv[3], "F32", bits[:16].tobytes(), 16, np.ones((1, model.embedding), "<f4"), 1)
print(*product.view(np.uint32).ravel())
"""


@pytest.fixture(scope="module")
def fast_math_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert COMPILER is not None, "this test builds a library: it needs gcc"
    folder = tmp_path_factory.mktemp("fast_math")
    source = folder / "fast.c"
    source.write_text("float half(float x) { return x * 0.5f; }\n")
    library = folder / "libfast.so"
    subprocess.run([COMPILER, "-O2", "-ffast-math", "-shared", "-fPIC", source, "-o", library], check=True)
    return library


def played(when: str, library: Path, kernel_set: str) -> tuple[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PLAY, when, library, kernel_set],
        cwd=TESTS, check=True, capture_output=True, text=True,
    )  # fmt: skip
    first, *rest = done.stdout.splitlines()
    return first, rest


def test_flush_to_zero_of_others_changes_nothing(fast_math_library: Path) -> None:
    kernel_set = subprocess.run(
        [sys.executable, "-c", "from tokenmill import _native; print(_native.select_kernel_set(None))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    environment, expected = played("never", fast_math_library, kernel_set)
    assert environment == "kept True"
    assert len(set(expected[:2])) == 1
    assert expected[2] == "[]"
    assert all(int(word) > 0 for word in expected[3].split())
    for when in ("before", "after"):
        environment, got = played(when, fast_math_library, kernel_set)
        assert environment == "flushed False", "the library did not switch on flush-to-zero: this test shows nothing"
        assert got == expected
    assert played("before", fast_math_library, "reference")[1] == expected
