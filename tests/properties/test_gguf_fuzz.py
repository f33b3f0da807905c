"""Mutated model files: each is refused with a clear error or computes a step; no crash, no hang, no run on memory.

TOKENMILL_FUZZ_CASES sets the number of cases (2,000 unless set), TOKENMILL_FUZZ_BASE another set of cases.
tests/sanitized_fuzz.sh runs this under AddressSanitizer and UndefinedBehaviorSanitizer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gguf_mutator import mutate, read_seed

from tiny_models import TinyModel, write_gguf

CASES = int(os.environ.get("TOKENMILL_FUZZ_CASES", "2000"))
BASE = int(os.environ.get("TOKENMILL_FUZZ_BASE", "0"))
PER_CHILD = 250
SECONDS_PER_CASE = 60  # a hang; slow cases are judged by the child

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files of every model type and weight format."""
    folder = tmp_path_factory.mktemp("seeds")
    small = {"layers": 1, "embedding": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "hidden": 32}
    super_blocks = {"layers": 1, "embedding": 256, "heads": 4, "kv_heads": 1, "head_dim": 64, "hidden": 256}
    for name, model in {
        "llama-q8_0": TinyModel("llama", **small, freq_factors=True),
        "llama-f16": TinyModel("llama", **small, default_format="F16", tied=False),
        "qwen2-q4_0": TinyModel("qwen2", **small, default_format="Q4_0", formats={"attn_v": "Q5_0"}),
        "qwen2-q4_1": TinyModel("qwen2", **small, default_format="Q4_1", formats={"attn_v": "Q5_1"}),
        "qwen3-iq4_nl": TinyModel("qwen3", **small, default_format="IQ4_NL", formats={"token_embd": "BF16"}),
        "llama-k": TinyModel(
            "llama", **super_blocks, default_format="Q4_K", formats={"attn_v": "Q5_K", "ffn_down": "Q6_K"}
        ),
    }.items():
        write_gguf(folder / f"{name}.gguf", model)
    return folder


def test_cases_can_be_made_again(seeds: Path) -> None:
    files = [read_seed(path.read_bytes()) for path in sorted(seeds.glob("*.gguf"))]
    assert [mutate(files, number) for number in range(20)] == [mutate(files, number) for number in range(20)]
    assert mutate(files, 1, base=1) != mutate(files, 1, base=2)


def run_child(seeds: Path, first: int, count: int) -> Iterator[str]:
    """The outcome of each case; the last is `BAD …` when the child died or hung."""
    flags = ["-S"] if sys.flags.no_site else []  # as in tests/sanitized_fuzz.sh
    command = [sys.executable, *flags, str(HERE / "gguf_fuzz_child.py"), str(seeds), str(BASE), str(first), str(count)]
    path = os.pathsep.join([str(HERE), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"},
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.append(child.stderr.read()), daemon=True)  # type: ignore[union-attr]
        reader.start()
        number = "none"
        watch = threading.Timer(SECONDS_PER_CASE, child.kill)
        watch.start()
        for line in child.stdout:
            watch.cancel()
            watch = threading.Timer(SECONDS_PER_CASE, child.kill)
            watch.start()
            word, number, *outcome = line.rstrip("\n").split(" ", 2)
            if word == "done":
                yield f"{outcome[0]} (case {number})" if outcome[0].startswith("BAD") else outcome[0]
        watch.cancel()
        if child.wait() != 0:
            reader.join(5)
            yield f"BAD the process ended with {child.returncode} in case {number}: {''.join(errors)[-3000:]}"


@pytest.mark.timeout(3600)
def test_mutated_files(seeds: Path) -> None:
    def batch(first: int) -> list[str]:
        return list(run_child(seeds, first, min(PER_CHILD, CASES - first)))

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        outcomes = [outcome for batch_ in pool.map(batch, range(0, CASES, PER_CHILD)) for outcome in batch_]
    bad = [outcome for outcome in outcomes if outcome.startswith("BAD")]
    counts = Counter(outcome for outcome in outcomes if not outcome.startswith("BAD"))
    print(dict(counts))
    assert not bad, f"{len(bad)} bad cases (base {BASE}), the first:\n" + "\n".join(bad[:5])
    assert len(outcomes) == CASES
    # The cases are worth their time only if they end everywhere.
    for outcome in ("reader", "plan", "weights", "step"):
        assert counts[outcome] >= CASES // 100, counts
