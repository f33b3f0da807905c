from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from tokenmill.cli.output import human_bytes, human_seconds, number_ranges, printable, to_jsonable
from tokenmill.cli.progress import _LogLines


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    path: Path
    value: float


@dataclass(frozen=True)
class Outer:
    items: tuple[Inner, ...]
    colour: Colour


def test_dataclasses_become_json_values() -> None:
    value = Outer((Inner(Path("/a"), math.nan), Inner(Path("b"), 1.5)), Colour.RED)
    assert to_jsonable(value) == {
        "items": [{"path": "/a", "value": None}, {"path": "b", "value": 1.5}],
        "colour": "red",
    }


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1024, "1 KiB"), (98362432, "93.8 MiB"), (25 << 30, "25 GiB")]
)
def test_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.0123, "12.3 ms"), (1.842, "1.84 s"), (math.nan, "-")])
def test_seconds(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text


@pytest.mark.parametrize(("numbers", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 8, 10, 11), "0-2,8,10-11")])
def test_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert number_ranges(numbers) == text


def test_control_characters_cannot_reach_the_terminal() -> None:
    assert printable("a\x1b[31mb\nc\td\x07 é漢🙂") == "a\\x1b[31mb\nc\td\\x07 é漢🙂"


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    monkeypatch.setattr("tokenmill.cli.progress.time.monotonic", lambda: now)
    lines = _LogLines()
    lines.stage("downloading m", 4 << 20)
    lines.advance(1 << 20)
    assert capsys.readouterr().err == ""
    now = 106.0
    lines.advance(1 << 20)
    lines.advance(1 << 20)
    assert capsys.readouterr().err == "downloading m: 2 MiB of 4 MiB\n"
