"""Writes docs/kernels.md from the kernel sets' folders: their tables, their notes, and native/kernels/SPEED.md.

    python docs/make_kernels_page.py [--check]

It reads sources, not the built module, so that every machine writes the same page, with the sets of other processors
too. tests/architecture/test_kernels_page.py holds the page to the sources, and the sources to the built registry.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "kernels.md"
KERNELS = ROOT / "native" / "kernels"

INTRODUCTION = """# Kernel sets

Made by `make docs` from the folders under `native/kernels/`; do not edit. Every set computes the same bits
([numerics.md](numerics.md)). At start the usable set with the highest rank is chosen and compared with the reference;
`tokenmill explain` shows the choice, and `TOKENMILL_KERNELS` forces one.
"""
SHAPES = """
Each of these functions takes any number of rows and tokens, and every K that a block of the format divides: rows that
fill no panel and a K that is no multiple of 256 are the last panel and the last unit of the same code. Attention
takes head sizes that are multiples of 8, up to 256. Norms, rotation, activations, quantization of activations and the
KV cache are each set's own too, unless the next section names them.
"""


@dataclass(frozen=True, slots=True)
class SetSource:
    """What a set's sources say of it. `borrowed` are functions that its table takes from the reference set."""

    name: str
    rank: int
    panel_rows: int
    required: tuple[str, ...]
    borrowed: tuple[str, ...]
    notes: str

    @property
    def processors(self) -> str:
        """The first words of the notes, which say where the set runs."""
        paragraph = self.notes.split("\n\n")[1].replace("\n", " ")
        return paragraph.partition(":")[0]


def read_sets(kernels: Path = KERNELS) -> list[SetSource]:
    """All sets, highest rank first."""
    return sorted((_read_set(file.parent) for file in kernels.glob("*/set.cmake")), key=lambda each: -each.rank)


def weight_formats() -> list[str]:
    """Names as GGUF tools print them, in the order of the table in weight_formats.h."""
    text = (ROOT / "native" / "contract" / "weight_formats.h").read_text(encoding="utf-8")
    return re.findall(r'\{"([A-Z0-9_]+)", \d+', text)


def page() -> str:
    """The whole page."""
    sets = read_sets()
    parts = [INTRODUCTION, "## Which set runs where\n", _table_of_sets(sets)]
    parts += ["## Formats\n", _table_of_formats(sets), SHAPES]
    parts += ["## Borrowed from the reference\n", _borrowed(sets)]
    parts += [_lower((KERNELS / "SPEED.md").read_text(encoding="utf-8"))]
    parts += ["## Notes of each set\n"]
    parts += [_lower(_lower(each.notes)) for each in sets]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _read_set(folder: Path) -> SetSource:
    text = (folder / "kernel_set.cpp").read_text(encoding="utf-8")
    table = re.search(r'TOKENMILL_KERNEL_TABLE\(\s*"(\w+)",[^;]*?,\s*(\d+),\s*(\d+)(?:,\s*\w+)?\)', text)
    if table is None:
        raise ValueError(f"{folder.name}/kernel_set.cpp has no TOKENMILL_KERNEL_TABLE(name, features, rank, rows)")
    return SetSource(
        name=table[1],
        rank=int(table[2]),
        panel_rows=int(table[3]),
        required=tuple(re.findall(r"feature_bit\(CpuFeature::(\w+)\)", text)),
        borrowed=tuple(re.findall(r"\breference::(\w+)", text)),
        notes=(folder / "NOTES.md").read_text(encoding="utf-8"),
    )


def _table_of_sets(sets: list[SetSource]) -> str:
    lines = ["| set | rank | needs | CPUs | rows of a panel |", "|---|---|---|---|---|"]
    for each in sets:
        needs = " ".join(each.required) or "nothing"
        lines.append(f"| `{each.name}` | {each.rank} | {needs} | {each.processors} | {each.panel_rows} |")
    return "\n".join(lines)


def _table_of_formats(sets: list[SetSource]) -> str:
    fast = [each for each in sets if each.name != "reference"]
    lines = ["| matrix product | " + " | ".join(f"`{each.name}`" for each in fast) + " |"]
    lines += ["|---" * (len(fast) + 1) + "|"]
    for name in weight_formats():
        cells = ["the reference's" if f"matmul_{name.lower()}" in each.borrowed else "own" for each in fast]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _borrowed(sets: list[SetSource]) -> str:
    lines = [f"- `{each.name}`: {', '.join(f'`{name}`' for name in each.borrowed)}" for each in sets if each.borrowed]
    return "\n".join(lines) if lines else "No set borrows a function: each has its own."


def _lower(markdown: str) -> str:
    """Headings one level lower, outside blocks of code."""
    lines, fenced = [], False
    for line in markdown.splitlines():
        fenced ^= line.startswith("```")
        lines.append(f"#{line}" if line.startswith("#") and not fenced else line)
    return "\n".join(lines)


def main() -> None:
    """Writes the page, or with --check says whether it would change."""
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        sys.exit("docs/kernels.md is not what its sources say: make docs")


if __name__ == "__main__":
    main()
