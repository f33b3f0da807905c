"""The benchmarks as commands, with sizes so small that figures mean nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tiny_models import TinyModel, write_gguf
from tokenmill.cli.bench_compare import read_report

TOKENMILL = [sys.executable, "-c", "from tokenmill.cli.entry import run; run()"]
QUICK = ["--repeats", "3", "--seconds", "0", "--memory", "4"]


def tokenmill(*arguments: str, code: int = 0, **environment: str) -> str:
    result = subprocess.run(
        [*TOKENMILL, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout if code == 0 else result.stderr


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = TinyModel("llama", embedding=256, hidden=256, context=600, default_format="Q4_0")
    return write_gguf(tmp_path_factory.mktemp("bench") / "tiny.gguf", model)


def test_bench_kernels(tmp_path: Path) -> None:
    kernels = ["bench", "kernels", "--shape", "40,256", "--tokens", "1,3", "--context", "40", *QUICK]
    shown = tokenmill(*kernels, "--json", str(tmp_path / "a.json"), "--plot", str(tmp_path / "roofline.svg"))
    report = read_report(tmp_path / "a.json")
    formats = {row.parameters["format"] for row in report.rows if row.name == "matmul"}
    assert formats == {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"}
    assert {"attention_decode", "attention_prefill", "quantize_rows", "rms_norm", "rope"} <= {
        r.name for r in report.rows
    }
    assert all(row.fraction for row in report.rows if row.name == "matmul")
    assert {"read", "read_1", "read_8", "int8", "fp32"} <= {limit.name for limit in report.limits}
    assert "vpmaddubsw" in shown or "vpdpbusd" in shown or "dot" in shown
    drawing = (tmp_path / "roofline.svg").read_text()
    assert drawing.startswith("<?xml")
    assert "Q4_0" in drawing
    again = tokenmill("bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "a.json"), "--fail-below", "0.97")
    assert "no difference seen" in again
    script = [sys.executable, "benchmarks/compare.py", str(tmp_path / "a.json"), str(tmp_path / "a.json"), "--json"]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(script, capture_output=True, text=True, check=True, cwd=root)
    assert all(ratio["ratio"] == 1 for ratio in json.loads(done.stdout)["ratios"])


def test_the_reference_has_no_limits_of_its_own() -> None:
    arguments = ["--set", "reference", "--format", "q4_0", "--shape", "16,64", "--tokens", "1", "--context", "", *QUICK]
    report = json.loads(tokenmill("bench", "kernels", *arguments, "--json", "-"))
    assert report["kernel_set"] == "reference"
    assert report["rows"][0]["fraction"] is None


def test_a_wrong_kernel_is_not_timed() -> None:
    said = tokenmill("bench", "kernels", *QUICK, code=1, TOKENMILL_TEST_BREAK_KERNEL="matmul_q4_0")
    assert "matmul_q4_0" in said


def test_bench_model(tiny: Path, tmp_path: Path) -> None:
    cases = ["--prefill", "40", "--decode", "1,3", "--context", "100", "--step-tokens", "16", *QUICK]
    document: dict[str, Any] = json.loads(tokenmill("bench", "model", str(tiny), *cases, "--json", "-"))
    rows = {(row["name"], *row["parameters"].values()): row for row in document["rows"]}
    assert set(rows) == {("prefill", 40, 16), ("decode", 1, 100), ("decode", 3, 100)}
    for row in rows.values():
        assert {"matmul", "attention", "other", "sampling", "outside"} <= set(row["phases"])
        assert sum(row["phases"].values()) == pytest.approx(1, abs=0.01)
        assert row["figures"][0]["unit"] == "tokens/s"
    assert document["model"]["formats"]["Q4_0"] > 0
    picture = tmp_path / "roofline.png"
    shown = tokenmill("bench", "model", str(tiny), *cases, "--plot", str(picture))
    assert "where the time goes" in shown
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_gives_what_was_measured(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "part.json"
    arguments = ["bench", "model", str(tiny), "--prefill", "16,32,64", "--decode", "", "--json", str(file)]
    command = [*TOKENMILL, *arguments, "--memory", "4", "--repeats", "1", "--seconds", "0.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("1 of 3: prefill")
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted" in shown
    report = read_report(file)
    assert not report.complete
    assert 1 <= len(report.rows) < 3


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["kernels", "--format", "q9"], "no weight format Q9"),
        (["kernels", "--format", "q4_k", "--shape", "16,96"], "96 columns"),
        (["kernels", "--shape", "16"], "--shape 16"),
        (["kernels", "--tokens", "0"], "--tokens 0"),
        (["kernels", *QUICK, "--shape", "2000000,32", "--format", "q4_0"], "rows, columns and tokens must be 1 to"),
        (["kernels", *QUICK, "--threads", "4000"], "4000 threads were asked for"),
        (["kernels", "--plot", "x.pdf"], "--plot x.pdf"),
        (["model", "x.gguf", "--decode", "a"], "--decode a"),
    ],
)
def test_misuse(arguments: list[str], complaint: str) -> None:
    assert complaint in tokenmill("bench", *arguments, code=2)
