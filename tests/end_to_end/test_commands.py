"""The commands as a person meets them: processes, signals, pipes and a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

TOKENMILL = [sys.executable, "-c", "from tokenmill.cli.entry import run; run()"]
GREEDY = ["--temperature", "0"]


def tokenmill(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TOKENMILL, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )


def document(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    value: dict[str, Any] = json.loads(result.stdout)
    return value


@pytest.fixture
def model(default_model_path: Path) -> str:
    return str(default_model_path)


def test_generate_streams_text_and_tells_its_speed(model: str) -> None:
    result = tokenmill("generate", model, "-p", "Say hello.", "-n", "12", *GREEDY)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert "tokens/s" in result.stderr
    assert "first after" in result.stderr


def test_generate_is_reproducible(model: str) -> None:
    def ask(*more: str) -> dict[str, Any]:
        return document(tokenmill("generate", model, "-p", "Tell me a story.", "-n", "16", "--json", *more))

    assert ask("--seed", "3")["text"] == ask("--seed", "3", "--threads", "1")["text"]
    first, second = ask(), ask()
    assert first["seed"] != second["seed"]
    assert first["text"] == ask("--seed", str(first["seed"]))["text"]


def test_generate_reads_standard_input_and_continues_raw_text(model: str) -> None:
    answer = document(
        tokenmill("generate", model, "--raw", "-n", "5", *GREEDY, "--json", stdin="The capital of France is")
    )
    assert "Paris" in answer["text"]
    assert answer["output_tokens"] <= 5


def test_bytes_and_encodings_of_strangers_are_no_crash(model: str) -> None:
    arguments = [*TOKENMILL, "generate", model, "--raw", "-n", "3", *GREEDY]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    result = subprocess.run(arguments, input=b"\xff\xfe caf\xe9", capture_output=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr


def test_an_empty_prompt_is_misuse(model: str) -> None:
    result = tokenmill("generate", model, "--raw", stdin="")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_generate_with_logprobs_and_stop(model: str) -> None:
    arguments = ["generate", model, "--raw", "-p", "One, two, three,", "-n", "12", *GREEDY, "--json"]
    answer = document(tokenmill(*arguments, "--logprobs", "2", "--stop", "six"))
    assert "six" not in answer["text"]
    assert answer["finish_reason"] == "stop"
    assert len(answer["logprobs"][0]["top"]) == 2
    assert answer["logprobs"][0]["logprob"] <= 0


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["-p", "x", "--logit-bias", "nonsense"], 2, "--logit-bias nonsense"),
        (["-p", "x", "--context", "1"], 2, "context"),
        (["-p", "word " * 3000, "--context", "512"], 2, "512"),
        (["--raw", "--system", "x", "-p", "y"], 2, "--system needs a chat"),
    ],
)
def test_generate_refuses_misuse(model: str, arguments: list[str], code: int, complaint: str) -> None:
    result = tokenmill("generate", model, *arguments)
    assert result.returncode == code, result.stderr
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_ctrl_c_ends_generate_cleanly(model: str) -> None:
    arguments = ["generate", model, "-p", "Count to a million.", "-n", "4000", "--ignore-eos"]
    with subprocess.Popen([*TOKENMILL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert b"stopped" in errors


def test_a_reader_that_leaves_is_no_crash(model: str) -> None:
    arguments = ["generate", model, "-p", "Count.", "-n", "400", "--ignore-eos"]
    with subprocess.Popen([*TOKENMILL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(timeout=60)
    assert process.returncode == 1
    assert b"Traceback" not in errors


def test_chat_remembers_and_ends_with_its_input(model: str) -> None:
    result = tokenmill("chat", model, "--json", "-n", "8", *GREEDY, stdin="Hello.\nAnd again.\n/clear\nHello.\n")
    assert result.returncode == 0, result.stderr
    first, second, third = [json.loads(line) for line in result.stdout.splitlines()]
    assert second["prompt_tokens"] > first["prompt_tokens"]
    assert third["prompt_tokens"] == first["prompt_tokens"]
    assert third["text"] == first["text"]


class Terminal:
    """The other end of a pseudo-terminal."""

    def __init__(self, arguments: list[str]) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [*TOKENMILL, *arguments])
        self.seen = ""
        self._unread = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, text: str, timeout_s: float = 60.0) -> None:
        """Reads until `text` appears after what the last call has found."""
        deadline = time.monotonic() + timeout_s
        while text not in self._unread:
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} in {self._unread!r}"
            if select.select([self._fd], [], [], left)[0]:
                try:
                    piece = os.read(self._fd, 4096).decode("utf-8", errors="replace")
                except OSError:  # the process has ended
                    piece = ""
                assert piece, f"ended without {text!r}: {self._unread!r}"
                self._unread += piece
                self.seen += piece
        self._unread = self._unread.partition(text)[2]

    def exit_code(self) -> int:
        while True:
            try:
                if not os.read(self._fd, 4096):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_chat_in_a_terminal_survives_ctrl_c_and_leaves_on_exit(model: str) -> None:
    terminal = Terminal(["chat", model, "-n", "2000", "--seed", "1"])
    terminal.wait_for("> ")
    terminal.type("Write a very long story about the sea, with many chapters.\n")
    terminal.wait_for("chapters.")
    time.sleep(1.0)
    terminal.type("\x03")
    terminal.wait_for("stopped]")
    terminal.wait_for("> ")
    terminal.type("/help\n")
    terminal.wait_for("/clear starts over")
    terminal.wait_for("> ")
    terminal.type("/exit\n")
    assert terminal.exit_code() == 0
    assert "Traceback" not in terminal.seen


def test_chat_ends_at_ctrl_c_when_nothing_runs(model: str) -> None:
    terminal = Terminal(["chat", model])
    terminal.wait_for("> ")
    terminal.type("\x03")
    assert terminal.exit_code() == 130


@contextmanager
def serving(model: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [*TOKENMILL, "serve", model, "--port", "0", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_where_it_is_and_drains(model: str, stop: signal.Signals) -> None:
    with serving(model, "--context", "1024", "--max-sequences", "2", "--name", "small") as (process, facts):
        assert facts["context_length"] == 1024
        assert facts["max_sequences"] == 2
        with urllib.request.urlopen(f"{facts['url']}/v1/models", timeout=30) as response:
            assert json.load(response)["data"][0]["id"] == "small"
        process.send_signal(stop)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_serve_on_a_port_in_use_is_a_clear_failure(model: str) -> None:
    with serving(model, "--context", "1024") as (_, facts):
        result = tokenmill("serve", model, "--port", facts["url"].rpartition(":")[2])
    assert result.returncode == 1
    assert "cannot listen" in result.stderr
    assert "Traceback" not in result.stderr


def test_serve_without_a_model_is_a_clear_failure(tmp_path: Path) -> None:
    result = tokenmill("serve", str(tmp_path / "absent.gguf"), "--port", "0")
    assert result.returncode == 1
    assert "absent.gguf" in result.stderr
    assert "Traceback" not in result.stderr


def test_explain_shows_the_machine_and_the_model(model: str) -> None:
    value = document(tokenmill("explain", model, "--json"))
    machine, explained = value["machine"], value["model"]
    chosen = [entry for entry in machine["kernel_sets"] if entry["chosen"]]
    assert [entry["name"] for entry in chosen] == [machine["kernel_set"]]
    assert {"reference"} < {entry["name"] for entry in machine["kernel_sets"]}
    assert machine["self_test_failures"] == []
    assert machine["threads"] >= 1
    assert explained["architecture"] == "llama"
    assert len(explained["tensors"]) == 272
    assert explained["weight_bytes"] <= 1.02 * sum(tensor["file_bytes"] for tensor in explained["tensors"])
    shown = tokenmill("explain", model, "--tensors").stdout
    for text in ("Kernel sets", "self-test", "token_embd.weight", "Q4_1", "KV cache", "NUMA node"):
        assert text.lower() in shown.lower()


def test_explain_forced_to_the_reference_says_so() -> None:
    machine = document(tokenmill("explain", "--json", TOKENMILL_KERNELS="reference"))["machine"]
    assert machine["kernel_set"] == "reference"
    whys = {entry["name"]: entry["why"] for entry in machine["kernel_sets"]}
    assert whys["reference"] == "forced by TOKENMILL_KERNELS"
    for entry in machine["kernel_sets"]:
        if entry["name"] != "reference" and entry["usable"]:
            assert "TOKENMILL_KERNELS forces reference" in entry["why"]


def test_a_kernel_set_that_is_not_there_is_never_replaced_in_silence(model: str) -> None:
    for arguments in (["explain"], ["generate", model, "-p", "x"]):
        result = tokenmill(*arguments, TOKENMILL_KERNELS="made_up")
        assert result.returncode == 2
        assert "made_up" in result.stderr
        assert "reference" in result.stderr
