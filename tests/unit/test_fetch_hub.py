"""Pulling from the hub: against a real HTTP server that speaks its API, with everything that goes wrong on the way."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gguf_builder import STRING, U16, Entry, File, Tensor, number, string
from hub_server import COMMIT, Hub, Repo, running_hub
from tokenmill.vocabulary.errors import FetchError
from tokenmill.weights import download
from tokenmill.weights.fetch import fetch
from tokenmill.weights.read_gguf import read_gguf

MODEL = random.Random(1).randbytes(3_000_000)
OTHER = random.Random(2).randbytes(1_000_000)


def split_part(number_: int, names: tuple[str, ...]) -> bytes:
    entries = [Entry("split.no", U16, number(U16, number_)), Entry("split.count", U16, number(U16, 2))]
    entries += [Entry("general.architecture", STRING, string("llama"))] if number_ == 0 else []
    return File(entries, [Tensor(name, (8,), 0, b"\0" * 32) for name in names]).encode()


def repositories() -> dict[str, Repo]:
    return {
        "owner/One-GGUF": Repo({"README.md": b"# hello", "one-q4_k_m.gguf": MODEL}),
        "owner/Many-GGUF": Repo(
            {
                "many.Q4_K_M.gguf": MODEL,
                "many.Q8_0.gguf": OTHER,
                "many-f16.gguf": OTHER[:1000],
                "UD/many-UD-Q4_K_XL.gguf": OTHER[:2000],
                "mmproj-many-f16.gguf": b"not a language model",
                "many.imatrix.gguf": b"nor this",
                "../escape-Q2_K.gguf": b"nor this",
            }
        ),
        "owner/Split-GGUF": Repo(
            {
                "q4/big-Q4_0-00001-of-00002.gguf": split_part(0, ("a",)),
                "q4/big-Q4_0-00002-of-00002.gguf": split_part(1, ("b", "c")),
                "big-Q8_0-00001-of-00002.gguf": split_part(0, ("a",)),
            }
        ),
        "owner/Twins-GGUF": Repo({"left-Q4_0.gguf": MODEL, "right-Q4_0.gguf": OTHER}),
        "owner/Torch": Repo({"model.safetensors": b"x", "config.json": b"{}"}),
        "owner/Gated-GGUF": Repo({"g-Q4_0.gguf": OTHER}, gated=True),
        "owner/Private-GGUF": Repo({"p-Q4_0.gguf": OTHER}, private=True),
        "owner/Plain-GGUF": Repo({"plain-Q4_0.gguf": OTHER}, plain=True),
    }


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(download, "_FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    with running_hub(repositories()) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


class Recorder:
    """Remembers the course of a pull."""

    def __init__(self) -> None:
        self.stages: list[list[object]] = []

    def stage(self, label: str, total_bytes: int | None) -> None:
        self.stages.append([label, total_bytes, 0])

    def advance(self, nbytes: int) -> None:
        self.stages[-1][2] += nbytes


def refused(name: str, cache: Path, *words: str) -> str:
    with pytest.raises(FetchError) as caught:
        fetch(name, cache=cache)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert not [path for path in cache.rglob("*.gguf") if path.is_file()]
    return str(caught.value)


# --- what a name means


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("owner/One-GGUF", MODEL),
        ("owner/One-GGUF:Q4_K_M", MODEL),
        ("owner/Many-GGUF:Q4_K_M", MODEL),
        ("owner/Many-GGUF:q8_0", OTHER),
        ("owner/Many-GGUF:FP16", OTHER[:1000]),
        ("owner/Many-GGUF:UD-Q4_K_XL", OTHER[:2000]),
        ("owner/Many-GGUF/many.Q8_0.gguf", OTHER),
        ("owner/Many-GGUF/UD/many-UD-Q4_K_XL.gguf", OTHER[:2000]),
        ("owner/Twins-GGUF/right-Q4_0.gguf", OTHER),
        ("owner/Plain-GGUF", OTHER),
    ],
)
def test_brings_the_file_that_the_name_means(hub: Hub, cache: Path, name: str, contents: bytes) -> None:
    path = fetch(name, cache=cache)
    assert path.read_bytes() == contents
    assert cache in path.parents
    assert COMMIT in path.parts
    assert not list(cache.rglob("*.part"))


def test_a_pulled_model_needs_no_network(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fetch("owner/One-GGUF:Q4_K_M", cache=cache)
    asked = len(hub.seen)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert fetch("owner/One-GGUF:Q4_K_M", cache=cache) == first
    assert len(hub.seen) == asked


@pytest.mark.parametrize("harm", ["remove", "cut", "bad record"])
def test_a_damaged_cache_is_filled_again(hub: Hub, cache: Path, harm: str) -> None:
    path = fetch("owner/One-GGUF:Q4_K_M", cache=cache)
    if harm == "remove":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(MODEL[:100])
    else:
        next(cache.rglob("*.json")).write_text("{")
    assert fetch("owner/One-GGUF:Q4_K_M", cache=cache).read_bytes() == MODEL


def test_progress_adds_up(hub: Hub, cache: Path) -> None:
    hub.faults.drop_after = [700_000, 900_000]
    recorder = Recorder()
    fetch("owner/One-GGUF", progress=recorder, cache=cache)
    labels = [stage[0] for stage in recorder.stages]
    assert labels == ["looking up owner/One-GGUF", "downloading one-q4_k_m.gguf", "verifying one-q4_k_m.gguf"]
    assert [stage[1:] for stage in recorder.stages[1:]] == [[len(MODEL), len(MODEL)]] * 2


def test_split_models_come_whole(hub: Hub, cache: Path) -> None:
    path = fetch("owner/Split-GGUF:Q4_0", cache=cache)
    assert path.name == "big-Q4_0-00001-of-00002.gguf"
    assert set(read_gguf(path).tensors) == {"a", "b", "c"}
    assert fetch("owner/Split-GGUF/q4/big-Q4_0-00002-of-00002.gguf", cache=cache) == path


def test_unclear_names_list_what_there_is(hub: Hub, cache: Path) -> None:
    refused("owner/Many-GGUF", cache, "several models", "Q4_K_M (0.00 GB)", "Q8_0", "F16", "UD-Q4_K_XL")
    message = refused("owner/Many-GGUF:Q3_K_S", cache, "has no Q3_K_S", "Q4_K_M", "Q8_0")
    assert "mmproj" not in message
    assert "escape" not in message
    refused("owner/Many-GGUF/other.gguf", cache, "has no other.gguf", "Q4_K_M")
    refused("owner/Twins-GGUF:Q4_0", cache, "right-Q4_0.gguf, left-Q4_0.gguf", "owner/Twins-GGUF/right-Q4_0.gguf")
    refused("owner/Torch", cache, "no GGUF model", ".safetensors")
    refused("owner/Split-GGUF:Q8_0", cache, "missing", "big-Q8_0-00002-of-00002.gguf")


# --- access


def test_repository_that_does_not_exist(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused("owner/Nothing:Q4_0", cache, "no such repository", "owner/Nothing")
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    refused("owner/Nothing:Q4_0", cache, "no such repository")


def test_gated_and_private(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused("owner/Gated-GGUF", cache, "accept terms", "HF_TOKEN", "g-Q4_0.gguf")
    refused("owner/Private-GGUF", cache, "private", "HF_TOKEN")
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    assert fetch("owner/Gated-GGUF", cache=cache).read_bytes() == OTHER
    assert fetch("owner/Private-GGUF", cache=cache).read_bytes() == OTHER


def test_wrong_token(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "hf_good"
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    refused("owner/One-GGUF", cache, "does not accept the access token")


def test_the_token_goes_to_the_hub_and_not_to_the_cdn(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    hub.faults.drop_after = [1000]
    fetch("owner/Private-GGUF", cache=cache)
    assert {request.authorization for request in hub.asked("hub")} == {"Bearer hf_good"}
    assert [request.authorization for request in hub.asked("cdn")] == [None, None]


# --- the network


@pytest.mark.parametrize("status", [429, 500, 503])
def test_hub_in_trouble(hub: Hub, cache: Path, status: int) -> None:
    hub.listing_status = status
    refused("owner/One-GGUF", cache, f"HTTP {status}")


def test_answer_that_is_not_the_hubs(hub: Hub, cache: Path) -> None:
    hub.listing_body = b"<html>Please log in to the hotel's network</html>"
    refused("owner/One-GGUF", cache, "cannot be reached")
    hub.listing_body = b"{}"
    refused("owner/One-GGUF", cache, "owner/One-GGUF")


def test_no_network(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    refused("owner/One-GGUF", cache, "cannot be reached", "HF_ENDPOINT")
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    refused("owner/One-GGUF", cache, "not an http")


def test_mirror_below_a_path(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_hub(repositories(), prefix="/mirror/hf") as mirror:
        monkeypatch.setenv("HF_ENDPOINT", mirror.endpoint + "/")
        assert fetch("owner/One-GGUF:Q4_K_M", cache=cache).read_bytes() == MODEL
        assert all(request.path.startswith("/mirror/hf/") for request in mirror.asked("hub"))


def test_broken_connections_are_continued(hub: Hub, cache: Path) -> None:
    hub.faults.drop_after = [500_000, 0, 1_000_000]
    assert fetch("owner/One-GGUF", cache=cache).read_bytes() == MODEL
    ranges = [request.range for request in hub.asked("cdn")]
    assert ranges == [None, "bytes=500000-", "bytes=500000-", "bytes=1500000-"]


def test_gives_up_without_progress_and_continues_next_time(hub: Hub, cache: Path) -> None:
    hub.faults.drop_after = [500_000, 0, 0, 0, 0, 0]
    refused("owner/One-GGUF", cache, "broke off 5 times", "continues")
    assert next(cache.rglob("*.part")).stat().st_size == 500_000
    assert fetch("owner/One-GGUF", cache=cache).read_bytes() == MODEL
    assert hub.asked("cdn")[-1].range == "bytes=500000-"


def test_server_without_ranges(hub: Hub, cache: Path) -> None:
    hub.faults.drop_after = [500_000]
    hub.faults.ignore_range = True
    recorder = Recorder()
    assert fetch("owner/One-GGUF", progress=recorder, cache=cache).read_bytes() == MODEL
    assert recorder.stages[1][2] == len(MODEL)


def test_server_without_ranges_that_always_breaks_off(hub: Hub, cache: Path) -> None:
    hub.faults.drop_after = [500_000, 400_000] * 10
    hub.faults.ignore_range = True
    refused("owner/One-GGUF", cache, "broke off")


def test_part_that_is_longer_than_the_file(hub: Hub, cache: Path) -> None:
    part = cache / "hub" / "owner" / "One-GGUF" / COMMIT / "one-q4_k_m.gguf.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * (len(MODEL) + 1))
    recorder = Recorder()
    assert fetch("owner/One-GGUF", progress=recorder, cache=cache).read_bytes() == MODEL
    assert recorder.stages[1][2] == len(MODEL)


def test_server_that_answers_another_range(hub: Hub, cache: Path) -> None:
    hub.faults.drop_after = [500_000]
    hub.faults.wrong_range = True
    refused("owner/One-GGUF", cache, "another range")


def test_busy_and_failing_cdn(hub: Hub, cache: Path) -> None:
    hub.faults.status = [503, 429]
    assert fetch("owner/One-GGUF", cache=cache).read_bytes() == MODEL
    hub.faults.status = [403]
    with pytest.raises(FetchError, match="403"):
        fetch("owner/Many-GGUF:Q8_0", cache=cache)


def test_wrong_checksum(hub: Hub, cache: Path) -> None:
    hub.repos["owner/One-GGUF"].sha256["one-q4_k_m.gguf"] = "0" * 64
    refused("owner/One-GGUF", cache, "sha256", "0" * 64)
    assert not list(cache.rglob("*.part"))


def test_more_bytes_than_announced(hub: Hub, cache: Path) -> None:
    hub.repos["owner/One-GGUF"].sizes["one-q4_k_m.gguf"] = 1000
    refused("owner/One-GGUF", cache, "more than the file's 1000 bytes")


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_redirects_stay_on_http(hub: Hub, cache: Path, address: str) -> None:
    hub.faults.redirect_to = address
    refused("owner/One-GGUF", cache, address.split(":", maxsplit=1)[0], "edirect")


# --- this machine


def test_no_space(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    refused("owner/One-GGUF", cache, "disk space", "TOKENMILL_CACHE")
    assert not hub.asked("cdn")


def test_cache_that_cannot_be_written(hub: Hub, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    refused("owner/One-GGUF", blocked, "cannot be written", "TOKENMILL_CACHE")


def test_two_pulls_at_once_download_once(hub: Hub, cache: Path) -> None:
    hub.faults.wait = threading.Event()
    recorder = Recorder()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fetch, "owner/One-GGUF", None, cache)
        while not hub.asked("cdn"):
            time.sleep(0.01)
        second = pool.submit(fetch, "owner/One-GGUF", recorder, cache)
        while not any("waiting" in str(stage[0]) for stage in recorder.stages):
            time.sleep(0.01)
        hub.faults.wait.set()
        assert first.result().read_bytes() == MODEL
        assert second.result() == first.result()
    assert len(hub.asked("cdn")) == 1


def test_ctrl_c_keeps_the_part_and_the_next_pull_continues(hub: Hub, cache: Path) -> None:
    hub.faults.wait = threading.Event()
    code = "import sys; from tokenmill.weights.fetch import fetch; fetch('owner/One-GGUF')"
    environment = {**os.environ, "TOKENMILL_CACHE": str(cache)}
    child = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while not any(part.stat().st_size for part in cache.rglob("*.part")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert b"KeyboardInterrupt" in stderr
    hub.faults.wait.set()
    assert not list(cache.rglob("*.gguf"))
    assert fetch("owner/One-GGUF", cache=cache).read_bytes() == MODEL
    assert hub.asked("cdn")[-1].range is not None
