"""The demo's script on a small load: it measures, writes its report and its picture, and stops its server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_demo(tmp_path: Path, default_model_path: Path) -> None:
    arguments = ["--model", str(default_model_path), "--users", "2", "--requests", "2", "--output", str(tmp_path)]
    result = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "demo.py", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for text in ("time to first token", "between tokens", "output tokens/s", "kernel set", "Derived"):
        assert text in result.stdout

    document = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    report = document["report"]
    assert (report["requests"], report["failed"], report["users"]) == (4, 0, 2)
    assert report["provenance"] == "measured"
    assert report["output_tokens"] > 0
    assert report["output_tokens_per_s"] > 0
    assert report["kernel_set"] in ("reference", "x86_avx2", "x86_avx512_vnni")
    assert report["threads"] >= 1
    assert report["server_peak_rss_bytes"] > 50e6
    assert 2 <= len(document["costs"]) <= 3
    assert all(cost["provenance"] == "derived" for cost in document["costs"])
    assert "AWS" in document["price_source"]
    assert (tmp_path / "demo.svg").read_text(encoding="utf-8").startswith("<svg")
