"""What `make bench-rivals` measures: models and cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenmill.weights.builtin_models import DEFAULT_MODEL
from tokenmill.weights.fetch import fetch

PROMPT_TOKENS = 48  # before decode


@dataclass(frozen=True, slots=True)
class Case:
    """Prefill of one prompt of `tokens`, or decode of `batch` sequences after a prompt of `tokens`."""

    kind: str
    tokens: int
    batch: int = 1

    def label(self) -> str:
        """For people."""
        if self.kind == "prefill":
            return f"prefill {self.tokens}"
        context = f", context {self.tokens}" if self.tokens != PROMPT_TOKENS else ""
        return f"decode {self.batch}{context}"


@dataclass(frozen=True, slots=True)
class Subject:
    """A model and what is measured on it.

    Attributes:
        preset: of make_model.py, with changed fields; empty: a model that `pull` knows.
        file: a file of the user's own.
        contexts: of one decoding sequence, measured with --long.
        agreement: share of next tokens that must be the rival's. Random weights give flat logits, which the rounding
            of either program tips over now and then.
    """

    name: str
    cases: tuple[Case, ...]
    preset: str = ""
    weight_type: str = ""
    layers: int = 0
    agreement: float = 0.9
    file: Path | None = None
    contexts: tuple[int, ...] = ()

    def path(self, folder: Path) -> Path:
        """The file; makes it where it has to be made."""
        if self.file is not None:
            return self.file
        if not self.preset:
            return fetch(self.name)
        path = folder / f"{self.name}.gguf"
        if not path.exists():
            from make_model import PRESETS, make_model  # noqa: PLC0415 - it writes files with a package of the tests

            folder.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.unlink(missing_ok=True)
            shape = PRESETS[self.preset]
            shape = dataclasses.replace(shape, layers=self.layers or shape.layers)
            make_model(part, shape, self.weight_type, fetch(DEFAULT_MODEL), 1)
            part.rename(path)
        return path


def _cases(prefill: Sequence[int], decode: Sequence[int]) -> tuple[Case, ...]:
    return (
        *(Case("prefill", tokens) for tokens in prefill),
        *(Case("decode", PROMPT_TOKENS, batch) for batch in decode),
    )


def subject_of_file(path: Path) -> Subject:
    """A file that the user names."""
    return Subject(path.stem, _cases((128, 512), (1, 4, 16)), file=path, agreement=0.5)


CURVE = tuple(range(1, 17))
SUBJECTS = (
    Subject(DEFAULT_MODEL, _cases((128, 512), CURVE)),
    Subject("qwen2.5-coder-0.5b", _cases((128, 512), CURVE), contexts=(8192, 32000)),
    Subject("7b-q4_0", _cases((128, 512), (1, 16)), "7b", "Q4_0", agreement=0.5),
    Subject("7b-q4_k_m", _cases((128, 512), (1, 16)), "7b", "Q4_K_M", agreement=0.5),
    Subject("7b-8-layers-q8_0", _cases((128,), (1, 16)), "7b", "Q8_0", 8, agreement=0.5),
    Subject("7b-8-layers-q5_k", _cases((128,), (1, 16)), "7b", "Q5_K", 8, agreement=0.5),
)
