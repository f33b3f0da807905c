"""The benchmark against rivals, with tokenmill as its own rival: the rest of it needs a rival's compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_models import TinyModel, write_gguf
from tokenmill.cli.bench_compare import read_report

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "bench_rivals.py"


def bench_rivals(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env=os.environ | {"PYTHONPATH": str(SCRIPT.parent)},
    )


def test_tokenmill_against_itself(tmp_path: Path) -> None:
    model = TinyModel("llama", embedding=256, hidden=256, context=1024, default_format="Q4_0")
    file = write_gguf(tmp_path / "tiny.gguf", model)
    run = bench_rivals(tmp_path, "--rival", "tokenmill", "--file", str(file), "--rounds", "1", "--json", "out.json")
    assert run.returncode == 0, run.stderr
    report = read_report(tmp_path / "out.json")
    assert [row.name for row in report.rows[::2]] == [
        f"tiny, {case}" for case in ("prefill 128", "prefill 512", "decode 1", "decode 4", "decode 16")
    ]
    assert all(row.time.median > 0 for row in report.rows)
    assert "ratio" in run.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--only", "no-such-model"), "no model is called no-such-model"), (("--rival", "openvino"), "make bench-rivals")],
)
def test_misuse_says_what_to_do(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    run = bench_rivals(tmp_path, *arguments)
    assert run.returncode == 2
    assert words in run.stderr
