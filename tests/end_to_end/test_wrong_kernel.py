"""A kernel that computes something else than the reference: nothing is ever served, and the error names it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tokenmill import _native

TOKENMILL = [sys.executable, "-c", "from tokenmill.cli.entry import run; run()"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def ready_status(port: int) -> int | None:
    """The HTTP status of /ready; None while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@pytest.mark.parametrize("function", ["matmul_q4_1", "attention_block"])
def test_a_wrong_kernel_never_gets_ready(default_model_path: Path, function: str) -> None:
    port = free_port()
    process = subprocess.Popen(
        [*TOKENMILL, "serve", str(default_model_path), "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TOKENMILL_TEST_BREAK_KERNEL": function},
    )
    seen = set()
    with process:
        while process.poll() is None:
            seen.add(ready_status(port))
        output, errors = process.communicate(timeout=30)
    assert seen <= {None, 503}, f"/ready said {seen}"
    assert process.returncode == 1
    assert len(output.splitlines()) == 1, output  # that it listens, and nothing of being ready
    assert "fails its self-test" in errors
    assert function in errors
    assert _native.select_kernel_set(None) in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("command", [["explain"], ["generate", "MODEL", "-p", "x"], ["serve", "MODEL", "--port", "0"]])
def test_a_forced_set_that_is_not_there_is_misuse(default_model_path: Path, command: list[str]) -> None:
    arguments = [str(default_model_path) if word == "MODEL" else word for word in command]
    done = subprocess.run(
        [*TOKENMILL, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"TOKENMILL_KERNELS": "x86_avx9"},
    )
    assert done.returncode == 2
    for name in ("x86_avx9", *(str(entry["name"]) for entry in _native.kernel_sets())):
        assert name in done.stderr
    assert "Traceback" not in done.stderr


def test_explain_tells_a_wrong_kernel() -> None:
    done = subprocess.run(
        [*TOKENMILL, "explain"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"TOKENMILL_TEST_BREAK_KERNEL": "rms_norm"},
    )
    assert done.returncode == 1
    assert "rms_norm" in done.stdout
