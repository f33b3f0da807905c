"""Runs fuzz cases in a process of their own, so that a crash, a hang or a run on memory is one case's and not pytest's.

Usage: gguf_fuzz_child.py SEED_FOLDER BASE FIRST COUNT. Prints `start N`, then `done N OUTCOME`, for each case. An
outcome is `reader`, `plan`, `tokenizer` or `weights` (refused there), `step` (computed), or `BAD …` (a fault of ours).
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
from gguf_mutator import Seed, mutate, read_seed

from tokenmill import _native
from tokenmill.engine.model_runner import open_model
from tokenmill.engine.placement import Placement
from tokenmill.models import plan_model
from tokenmill.text.tokenizer import Tokenizer
from tokenmill.vocabulary.errors import ModelFileError, UnsupportedModelError
from tokenmill.weights.inspect import describe
from tokenmill.weights.pack import load_weights
from tokenmill.weights.progress import SilentProgress
from tokenmill.weights.read_gguf import read_gguf

EXPECTED = (ModelFileError, UnsupportedModelError)
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
# The files are under 1 MB. Half of this is what a first step costs anyway (arena, stacks, imports on first use).
MEMORY_LIMIT_BYTES = (512 if SANITIZED else 96) << 20
SECONDS_LIMIT = 20.0 if SANITIZED else 4.0


def run_case(path: Path) -> str:
    """How far the file gets. Any exception but the expected ones is a fault."""
    try:
        model_file = read_gguf(path)
        describe(model_file)
    except EXPECTED:
        return "reader"
    try:
        plan = plan_model(model_file)
    except EXPECTED:
        return "plan"
    try:
        Tokenizer.from_metadata(model_file.metadata)
    except EXPECTED:
        return "tokenizer"
    try:
        kernel_set = _native.select_kernel_set(os.environ.get("TOKENMILL_KERNELS"))
        model = open_model(plan, kernel_set=kernel_set, placement=Placement(threads=1))
        load_weights(model, model_file, plan, SilentProgress())
    except EXPECTED:
        return "weights"
    model.allocate_kv(1)
    page = np.array([0], np.int32)
    model.zero_pages(page)
    tokens = np.array([0, plan.vocab_size // 2, plan.vocab_size - 1][: plan.context_length], np.int32)
    result = model.step(
        tokens,
        np.array([0, len(tokens)], np.int32),
        np.array([0], np.int32),
        page,
        np.array([0, 1], np.int32),
        np.array([len(tokens) - 1], np.int32),
        None,
        [None],
        return_logits=True,
    )
    assert result.logits is not None
    assert result.logits.shape == (1, plan.vocab_size)
    return "step"


def peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmHWM")


def watched_case(path: Path) -> str:
    """run_case, with its memory and time judged."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is resident now
    before = peak_bytes()
    start = time.monotonic()
    try:
        outcome = run_case(path)
    except BaseException:
        return "BAD " + traceback.format_exc().strip().replace("\n", " | ")
    seconds, grown = time.monotonic() - start, peak_bytes() - before
    if grown > MEMORY_LIMIT_BYTES:
        return f"BAD {outcome} took {grown >> 20} MiB"
    if seconds > SECONDS_LIMIT:
        return f"BAD {outcome} took {seconds:.1f} s"
    return outcome


def main() -> None:
    folder, base, first, count = Path(sys.argv[1]), *map(int, sys.argv[2:])
    seeds: list[Seed] = [read_seed(path.read_bytes()) for path in sorted(folder.glob("*.gguf"))]
    if not SANITIZED:  # address space that is asked for and never touched does not show in the peak
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "case.gguf"
        for number in range(first, first + count):
            path.write_bytes(mutate(seeds, number, base))
            print(f"start {number}", flush=True)
            print(f"done {number} {watched_case(path)}", flush=True)


if __name__ == "__main__":
    main()
