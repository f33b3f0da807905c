from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules

import pytest
from typer.testing import CliRunner, Result

from tokenmill.cli import commands, failures
from tokenmill.cli.main import app
from tokenmill.vocabulary.errors import FetchError, RequestError

COMMANDS = sorted(module.name for module in iter_modules(commands.__path__))
LEAVES = sorted(
    [module.name] if not module.ispkg else [module.name, part.name]
    for module in iter_modules(commands.__path__)
    for part in (iter_modules([f"{commands.__path__[0]}/{module.name}"]) if module.ispkg else [module])
)


def tokenmill(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_help_lists_every_command() -> None:
    result = tokenmill("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f" {name} " in result.stdout


@pytest.mark.parametrize("words", [*LEAVES, ["bench"]], ids=" ".join)
def test_every_command_teaches_with_examples(words: list[str]) -> None:
    result = tokenmill(*words, "--help")
    assert result.exit_code == 0
    assert "Examples" in result.stdout
    assert f"tokenmill {' '.join(words)}" in result.stdout
    assert "--json" in result.stdout


def test_help_is_quick() -> None:
    """0.3 s on an idle machine, nearly all of it processor time, which others on the machine disturb less."""

    def cpu_seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-c", "from tokenmill.cli.entry import run; run()", "--help"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(cpu_seconds() for _ in range(3)) < 0.6


def test_version() -> None:
    assert tokenmill("--version").stdout.startswith("tokenmill ")


@pytest.mark.parametrize(
    "arguments", [["nope"], ["pull", "--nope"], ["inspect"], ["generate", "-p", "x", "--top-p", "2"]]
)
def test_misuse_is_exit_code_2(arguments: list[str]) -> None:
    result = tokenmill(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""


def test_an_expected_failure_is_one_message_without_a_traceback(tmp_path: Path) -> None:
    result = tokenmill("inspect", str(tmp_path / "absent.gguf"))
    assert result.exit_code == 1
    assert result.stderr.startswith("tokenmill: ")
    assert "Traceback" not in result.output


@pytest.mark.parametrize("content", [b"", b"hello", b"GGUF", b"GGUF\x03\x00\x00\x00" + b"\xff" * 16])
def test_inspect_refuses_what_is_no_model(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    result = tokenmill("inspect", str(file))
    assert result.exit_code == 1
    assert str(file) in result.stderr
    assert "Traceback" not in result.output


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENMILL_DEBUG", "1")
    result = tokenmill("inspect", "./absent.gguf")
    assert isinstance(result.exception, FetchError)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (FetchError("cannot be found", where="m"), 1, "tokenmill: m: cannot be found\n"),
        (RequestError("must be positive", parameter="top_k"), 2, "tokenmill: must be positive\n"),
        (KeyboardInterrupt(), 130, "\nInterrupted.\n"),
        (FileNotFoundError(2, "No such file or directory", "x"), 1, "tokenmill: x: No such file or directory\n"),
        (ZeroDivisionError("a bug"), None, ""),
    ],
)
def test_failures(error: BaseException, code: int | None, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert failures.exit_code_of(error) == code
    assert capsys.readouterr().err == message


def test_pull_of_a_local_file_prints_its_path(default_model_path: Path) -> None:
    result = tokenmill("pull", str(default_model_path), "--json")
    assert json.loads(result.stdout)["path"] == str(default_model_path)
    assert tokenmill("pull", str(default_model_path)).stdout.strip() == str(default_model_path)


def test_inspect_of_the_default_model(default_model_path: Path) -> None:
    document = json.loads(tokenmill("inspect", str(default_model_path), "--json", "--tensors", "--metadata").stdout)
    assert document["architecture"] == "llama"
    assert document["tensors"] == len(document["tensor_list"]) == 272
    assert document["metadata"]["tokenizer.ggml.tokens"].endswith("49152 in all]")
    shown = tokenmill("inspect", str(default_model_path), "--tensors", "--metadata").stdout
    for text in ("Q4_1", "token_embd.weight", "llama.context_length", "134.5 M"):
        assert text in shown
