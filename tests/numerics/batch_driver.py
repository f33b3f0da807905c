"""Drives a native model by ragged batches of many sequences, and gives each sequence's logits as digests."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tiny_models import TinyModel, tiny_plan, tiny_tensors
from tokenmill import _native

PAGE_TOKENS = 16


@dataclasses.dataclass(frozen=True)
class Script:
    """One sequence: its tokens are given, so every way to compute it must give the same logits.

    The first `prompt` tokens come in chunks, the rest one by one; it joins at step `start`.
    """

    tokens: NDArray[np.int32]
    prompt: int
    start: int = 0


@dataclasses.dataclass
class Played:
    """What came of a script: one digest per position, and whether a non-finite value was met."""

    digests: list[str] = dataclasses.field(default_factory=list)
    nonfinite: bool = False


@dataclasses.dataclass
class _Running:
    number: int
    script: Script
    position: int
    pages: list[int]


def digest_of(logits: NDArray[np.float32]) -> str:
    return hashlib.sha256(logits.tobytes()).hexdigest()


def open_tiny(
    model: TinyModel, kernel_set: str, threads: int, changed: dict[str, bytes] | None = None
) -> _native.Model:
    """Loads a tiny model; `changed` replaces the bytes of tensors."""
    native = _native.Model(dataclasses.asdict(tiny_plan(model)), kernel_set=kernel_set, threads=threads, cpus=None)
    with tempfile.TemporaryFile() as stream:
        offset = 0
        for name, tensor in tiny_tensors(model).items():
            data = (changed or {}).get(name, tensor.data)
            stream.write(data)
            stream.flush()
            rows = tensor.shape[0] if len(tensor.shape) == 2 else 1
            native.load_tensor(name, tensor.format, rows, tensor.shape[-1], stream.fileno(), offset, len(data))
            offset += len(data)
    native.finish_loading()
    return native


def random_scripts(count: int, vocab: int, long_lengths: Sequence[int], seed: int = 5) -> list[Script]:
    """`count` scripts: short ones of every kind, and the given long ones spread among them."""
    rng = np.random.default_rng(seed)
    lengths = [int(length) for length in rng.integers(1, 70, count - len(long_lengths))]
    for index, length in enumerate(long_lengths):
        lengths.insert(index * 4 + 1, length)
    return [
        Script(
            tokens=rng.integers(0, vocab, length, dtype=np.int32),
            prompt=max(1, length - int(rng.integers(0, 12))),
            start=int(rng.integers(0, 4)),
        )
        for length in lengths
    ]


def play(model: _native.Model, scripts: Sequence[Script], *, chunk: int, pages: int, seed: int = 0) -> list[Played]:
    """Plays all scripts together. Pages are handed out in shuffled order and used again once a sequence has ended."""
    rng = np.random.default_rng(seed)
    free = [int(page) for page in rng.permutation(pages)]
    played = [Played() for _ in scripts]
    waiting = sorted(range(len(scripts)), key=lambda number: scripts[number].start)
    running: list[_Running] = []
    step = 0
    while waiting or running:
        while waiting and scripts[waiting[0]].start <= step:
            number = waiting.pop(0)
            need = -(-len(scripts[number].tokens) // PAGE_TOKENS)
            taken = [free.pop() for _ in range(need)]
            model.zero_pages(np.array(taken, np.int32))
            running.append(_Running(number, scripts[number], 0, taken))
        if running:
            _play_step(model, running, chunk, played)
        for sequence in [each for each in running if each.position == len(each.script.tokens)]:
            running.remove(sequence)
            free = [*sequence.pages, *free] if step % 2 else [*free, *sequence.pages]
        step += 1
    return played


def _play_step(model: _native.Model, running: list[_Running], chunk: int, played: list[Played]) -> None:
    counts = [
        min(chunk, each.script.prompt - each.position) if each.position < each.script.prompt else 1 for each in running
    ]
    parts = [
        each.script.tokens[each.position : each.position + count] for each, count in zip(running, counts, strict=True)
    ]
    rows = sum(counts)
    result = model.step(
        np.concatenate(parts),
        np.cumsum([0, *counts], dtype=np.int32),
        np.array([each.position for each in running], np.int32),
        np.concatenate([np.array(each.pages, np.int32) for each in running]),
        np.cumsum([0, *(len(each.pages) for each in running)], dtype=np.int32),
        np.arange(rows, dtype=np.int32),
        None,
        [None] * rows,
        return_logits=True,
    )
    assert result.logits is not None
    row = 0
    for index, (each, count) in enumerate(zip(running, counts, strict=True)):
        for logits in result.logits[row : row + count]:
            played[each.number].digests.append(digest_of(logits))
        played[each.number].nonfinite |= bool(result.nonfinite[index])
        row += count
        each.position += count


def play_alone(model: _native.Model, script: Script, pages: int) -> Played:
    """The script alone, its prompt in one piece."""
    return play(model, [script], chunk=len(script.tokens), pages=pages)[0]
