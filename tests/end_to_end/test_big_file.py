"""A 7B-shaped model of 4.4 GB loads and generates within 1.15 times the file and the KV cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTEXT = 256
# Qwen2-7B's shape (benchmarks/make_model.py): 28 layers, 4 KV heads of 128, keys and values in 2 bytes.
KV_BYTES = CONTEXT * 28 * 4 * 128 * 2 * 2


def peak_of(command: list[str]) -> tuple[int, str, str]:
    """Runs a command; the largest resident size of its process (VmHWM) in bytes, what it printed and its log."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        out, err = child.stdout.read(), child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, err.decode()
    return usage.ru_maxrss << 10, out.decode(), err.decode()


@pytest.mark.scheduled
@pytest.mark.timeout(3600)
def test_seven_billion_weights(tmp_path: Path) -> None:
    assert shutil.disk_usage(tmp_path).free > 8e9, "8 GB of free disk are needed"
    path = tmp_path / "7b-q4_0.gguf"
    maker = [sys.executable, str(ROOT / "benchmarks" / "make_model.py"), str(path)]
    try:
        subprocess.run([*maker, "--preset", "qwen2-7b", "--type", "Q4_0"], check=True)
        size = path.stat().st_size
        assert size > 4.3e9
        tokenmill = str(Path(sys.executable).with_name("tokenmill"))
        command = [tokenmill, "generate", str(path), "-p", "Hello", "--max-tokens", "4"]
        peak, out, err = peak_of([*command, "--context", str(CONTEXT), "--ignore-eos", "--temperature", "0", "--json"])
    finally:
        path.unlink(missing_ok=True)
    answer = json.loads(out)
    print(f"file {size / 1e9:.2f} GB, KV {KV_BYTES / 1e6:.0f} MB, peak {peak / 1e9:.2f} GB, {answer}")
    assert answer["output_tokens"] == 4
    assert "Loading weights" in err  # progress reaches a log, too
    assert peak <= 1.15 * size + KV_BYTES
