"""The shape of the code, as rules that fail: sizes, names, and who may use what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tokenmill"
MAX_LINES = 425  # "about 400"
LONGER = {"native/bindings.cpp": 500}  # the model's part of what knows Python stays one file
MAX_COMMAND_LINES = 80
USERS_OF_NATIVE = {
    "engine/model_runner.py",
    "engine/self_test.py",
    "engine/bench/kernels.py",
    "engine/bench/limits.py",
    "engine/bench/model.py",
    "weights/pack.py",
    "cli/explain.py",
}
X86_HEADER = re.compile(r"#\s*include\s*<(?:\w*mmintrin|x86intrin|x86gprintrin|cpuid)\.h>")
ARM_HEADER = re.compile(r"#\s*include\s*<arm_\w+\.h>")


def source_files() -> list[Path]:
    folders = [PACKAGE, ROOT / "native", ROOT / "tests", ROOT / "benchmarks"]
    return sorted(
        file for folder in folders for suffix in ("*.py", "*.pyi", "*.cpp", "*.h") for file in folder.rglob(suffix)
    )


def native_files() -> list[Path]:
    return sorted(file for suffix in ("*.cpp", "*.h") for file in (ROOT / "native").rglob(suffix))


def python_modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported_names(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f"{node.module or ''}.{alias.name}" for alias in node.names)
    return names


def test_there_is_something_to_check() -> None:
    assert len(python_modules()) > 20
    assert native_files()


@pytest.mark.parametrize("file", source_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_file_length(file: Path) -> None:
    lines = len(file.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGER.get(str(file.relative_to(ROOT)), MAX_LINES), f"{lines} lines: split it"


@pytest.mark.parametrize("file", sorted((PACKAGE / "cli" / "commands").glob("*.py")), ids=lambda file: file.stem)
def test_command_length(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= MAX_COMMAND_LINES


def test_no_file_named_for_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "misc", "common"}
    assert [file for file in source_files() if file.stem in vague or file.parent.name in vague] == []


def test_only_the_named_modules_use_native_code() -> None:
    users = {
        str(file.relative_to(PACKAGE))
        for file in python_modules()
        if any(name.startswith("tokenmill._native") for name in imported_names(file))
    }
    assert users <= USERS_OF_NATIVE


def test_instruction_set_headers_stay_in_their_folders() -> None:
    strays = []
    for file in native_files():
        place = str(file.relative_to(ROOT / "native"))
        text = file.read_text(encoding="utf-8")
        if X86_HEADER.search(text) and not place.startswith(("kernels/x86_", "dispatch/detect_cpu", "threads/fp_")):
            strays.append(place)
        if ARM_HEADER.search(text) and not place.startswith("kernels/arm_"):
            strays.append(place)
    assert strays == []


def test_only_the_bindings_know_python() -> None:
    knowing = {file.name for file in native_files() if re.search(r"#\s*include\s*<(nanobind|Python)", file.read_text())}
    assert knowing == {"bindings.cpp", "bindings_bench.cpp", "bindings_bench.h"}


def test_no_architecture_name_in_native_code() -> None:
    names = re.compile(r"\b(llama|mistral|smollm2?|qwen[23]?|gemma[23]?|phi3?)\b", re.IGNORECASE)
    places = [str(file.relative_to(ROOT)) for file in native_files() if "tests" not in file.parts]
    assert [place for place in places if names.search((ROOT / place).read_text(encoding="utf-8"))] == []


def test_import_rules() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_scheduling_is_pure() -> None:
    """Data in, decisions out: nothing that tells the time, waits, or reaches outside of the process."""
    allowed = {"__future__", "array", "bisect", "collections", "dataclasses", "heapq", "json", "math", "typing"}
    names = {name for file in (PACKAGE / "scheduling").glob("*.py") for name in imported_names(file)}
    outside = {name for name in names if not name.startswith(("tokenmill.scheduling", "tokenmill.vocabulary"))}
    assert {name.split(".")[0] for name in outside} <= allowed


def test_the_command_line_starts_without_what_is_heavy() -> None:
    code = """
import sys
from tokenmill.cli import main
group = main.CommandsByFile(name="tokenmill")
assert all(group.get_command(None, name) for name in group.list_commands(None))
heavy = {"numpy", "pydantic", "starlette", "uvicorn", "aiohttp", "tokenizers", "jinja2", "huggingface_hub"}
print(*(heavy | {"tokenmill._native", "tokenmill.engine"}) & set(sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []
