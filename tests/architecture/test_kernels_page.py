"""docs/kernels.md is what the sources say, and the sources are what the built registry has."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tokenmill import _native

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs"))

import make_kernels_page  # noqa: E402

SOURCES = {each.name: each for each in make_kernels_page.read_sets()}
COMPILED = {str(entry["name"]): entry for entry in _native.kernel_sets()}


def test_the_page_is_up_to_date() -> None:
    assert make_kernels_page.PAGE.read_text(encoding="utf-8") == make_kernels_page.page(), "make docs"


@pytest.mark.parametrize("name", COMPILED)
def test_the_page_is_of_the_sets_that_are_built(name: str) -> None:
    source, entry = SOURCES[name], COMPILED[name]
    assert (source.rank, source.panel_rows) == (entry["rank"], entry["panel_rows"])
    assert sorted(source.required) == sorted(entry["required"])


@pytest.mark.parametrize("name", COMPILED)
def test_no_set_borrows_what_is_not_listed(name: str) -> None:
    """Compares function pointers; each borrowed function's share of a step stands in the set's notes, below 2 %."""
    source = SOURCES[name]
    assert sorted(COMPILED[name]["borrowed"]) == sorted(source.borrowed)
    for function in source.borrowed:
        share = re.search(rf"borrows `{function}`: (\d+(?:\.\d+)?) % of a step", source.notes)
        assert share is not None, f"NOTES.md of {name}: 'borrows `{function}`: N % of a step' is missing"
        assert float(share[1]) < 2.0


def test_every_set_says_where_it_runs() -> None:
    for source in SOURCES.values():
        assert source.notes.startswith(f"# {source.name}\n\n"), source.name
        assert 3 < len(source.processors) < 100, f"{source.name}: the notes begin with CPUs and a colon"


def test_formats_are_those_of_the_contract() -> None:
    assert len(make_kernels_page.weight_formats()) == 12


def test_a_set_that_borrows_is_listed(tmp_path: Path) -> None:
    folder = tmp_path / "x86_new"
    folder.mkdir()
    (folder / "set.cmake").touch()
    (folder / "NOTES.md").write_text("# x86_new\n\nNew CPUs: all of them.\n")
    (folder / "kernel_set.cpp").write_text(
        "using reference::rope;\nfeature_bit(CpuFeature::avx) | feature_bit(CpuFeature::fma);\n"
        'constinit const KernelSet kernel_set = TOKENMILL_KERNEL_TABLE("x86_new", kRequired,\n 7, 32);\n'
    )
    (read,) = make_kernels_page.read_sets(tmp_path)
    assert (read.name, read.rank, read.panel_rows) == ("x86_new", 7, 32)
    assert (read.required, read.borrowed, read.processors) == (("avx", "fma"), ("rope",), "New CPUs")
