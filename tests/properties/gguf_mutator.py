"""Mutations of real GGUF files that know where the header's fields are.

Random byte flips alone nearly always die in the first check; fields set to chosen values get deep. A case is a pure
function of (seed files, number), so a failing one can be made again from its number.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_VALUE_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_INTERESTING = (0, 1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 64, 65, 255, 256, 257, 4096, 65535, 65536, 1 << 24)
_INTERESTING += tuple((1 << power) + delta for power in (31, 32, 40, 60, 63, 64) for delta in (-1, 0, 1))
_FLOATS = (0.0, -0.0, -1.0, 1e-45, 1e-30, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan"))


@dataclass(frozen=True)
class Field:
    """A number in the header: where, how wide, and what it means."""

    offset: int
    size: int
    kind: str  # magic version count length type value element dims dimension ggml_type tensor_offset


@dataclass(frozen=True)
class Seed:
    """A valid file and the map of its fields; `entries` and `records` are byte ranges that can be moved as a whole."""

    data: bytes
    fields: tuple[Field, ...]
    entries: tuple[tuple[int, int], ...]
    records: tuple[tuple[int, int], ...]
    data_start: int


def read_seed(data: bytes) -> Seed:
    """Maps a file that is known to be good."""
    fields = [Field(0, 4, "magic"), Field(4, 4, "version"), Field(8, 8, "count"), Field(16, 8, "count")]
    tensor_count, entry_count = struct.unpack_from("<QQ", data, 8)
    at = 24

    def number(size: int, kind: str) -> int:
        nonlocal at
        fields.append(Field(at, size, kind))
        at += size
        return int.from_bytes(data[at - size : at], "little")

    def text() -> None:
        nonlocal at
        length = number(8, "length")  # moves `at` too
        at += length

    def value(kind: int) -> None:
        nonlocal at
        if kind == _STRING:
            text()
        elif kind == _ARRAY:
            element, count = number(4, "type"), number(8, "count")
            for index in range(count):
                if element == _STRING:
                    text()
                elif index == 0:
                    number(_VALUE_BYTES[element], "element")
                else:
                    at += _VALUE_BYTES[element]
        else:
            number(_VALUE_BYTES[kind], "value")

    entries, records = [], []
    for _ in range(entry_count):
        start = at
        text()
        value(number(4, "type"))
        entries.append((start, at))
    for _ in range(tensor_count):
        start = at
        text()
        for _ in range(number(4, "dims")):
            number(8, "dimension")
        number(4, "ggml_type")
        number(8, "tensor_offset")
        records.append((start, at))
    return Seed(data, tuple(fields), tuple(entries), tuple(records), -(-at // 32) * 32)


def mutate(seeds: Sequence[Seed], number: int, base: int = 0) -> bytes:
    """Case `number`: one of the files with one to three changes. `base` shifts all cases, for another run."""
    rng = random.Random(f"{base}/{number}")
    seed = rng.choice(seeds)
    data = bytearray(seed.data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choices(_CHANGES, _WEIGHTS)[0]
        change(data, seed, seeds, rng)
    return bytes(data)


def _put(data: bytearray, offset: int, size: int, value: int) -> None:
    if offset + size <= len(data):
        data[offset : offset + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _structural(data: bytearray, seed: Seed, seeds: Sequence[Seed], rng: random.Random) -> None:
    """A count, length, type, dimension or offset becomes something else."""
    kinds = sorted({field.kind for field in seed.fields} - {"value", "element"})
    kind = rng.choice(kinds)
    field = rng.choice([field for field in seed.fields if field.kind == kind])
    old = int.from_bytes(seed.data[field.offset : field.offset + field.size], "little")
    near = (old - 1, old + 1, old * 2, old // 2, old + 32, old - 32, -old, len(data), len(data) - field.offset)
    value = rng.choice((*near, rng.choice(_INTERESTING), rng.getrandbits(8 * field.size), rng.randrange(42)))
    _put(data, field.offset, field.size, value)


def _metadata(data: bytearray, seed: Seed, seeds: Sequence[Seed], rng: random.Random) -> None:
    """A metadata number becomes something else: sizes of the model, RoPE's base, token ids."""
    field = rng.choice([field for field in seed.fields if field.kind in {"value", "element"}])
    old = int.from_bytes(seed.data[field.offset : field.offset + field.size], "little")
    value = rng.choice((old - 1, old + 1, old * 2, old // 2, rng.choice(_INTERESTING), rng.getrandbits(32)))
    if field.size == 4 and rng.random() < 0.3:
        value = int.from_bytes(struct.pack("<f", rng.choice(_FLOATS)), "little")
    _put(data, field.offset, field.size, value)


def _flip(data: bytearray, seed: Seed, seeds: Sequence[Seed], rng: random.Random) -> None:
    end = rng.choice((len(data), min(len(data), seed.data_start)))
    for _ in range(rng.choice((1, 2, 8, 32))):
        if end:
            data[rng.randrange(end)] ^= 1 << rng.randrange(8)


def _weights(data: bytearray, seed: Seed, seeds: Sequence[Seed], rng: random.Random) -> None:
    """Bit patterns of infinities, NaNs and denormals among the weights, where scales are now and then."""
    pattern = rng.choice((b"\x00\x7c", b"\x00\xfc", b"\x00\x7e", b"\xff\xff", b"\x01\x00", b"\xff\x7b", b"\x80\x7f"))
    if len(data) > seed.data_start + 4:
        for _ in range(rng.choice((1, 16, 256))):
            at = rng.randrange(seed.data_start, len(data) - 1)
            data[at : at + 2] = pattern


def _truncate(data: bytearray, seed: Seed, seeds: Sequence[Seed], rng: random.Random) -> None:
    end = rng.choice((len(data), min(len(data), seed.data_start)))
    del data[rng.randrange(end + 1) :]


def _extend(data: bytearray, seed: Seed, seeds: Sequence[Seed], rng: random.Random) -> None:
    data += rng.randbytes(rng.choice((1, 31, 32, 4096)))


def _splice(data: bytearray, seed: Seed, seeds: Sequence[Seed], rng: random.Random) -> None:
    """A piece of one of the files over, into or out of this one."""
    other = rng.choice(seeds).data
    start = rng.randrange(len(other))
    piece = other[start : start + rng.choice((1, 4, 8, 32, 512, 8192))]
    at = rng.randrange(len(data) + 1)
    cut = rng.choice((0, len(piece), rng.randrange(64)))
    data[at : at + cut] = rng.choice((piece, b""))


def _move_entry(data: bytearray, seed: Seed, seeds: Sequence[Seed], rng: random.Random) -> None:
    """A whole metadata entry or tensor record is doubled, dropped, or replaced by another one (counts kept or not)."""
    ranges, count_at = rng.choice(((seed.entries, 16), (seed.records, 8)))
    if bytes(data[: seed.data_start]) != seed.data[: seed.data_start]:  # moved already: the map is no longer right
        return
    start, end = rng.choice(ranges)
    other_start, other_end = rng.choice(ranges)
    action, step = rng.choice((("double", 1), ("drop", -1), ("replace", 0)))
    piece = {"double": seed.data[start:end] * 2, "drop": b"", "replace": seed.data[other_start:other_end]}[action]
    # The padding before the tensor data takes up the difference, so that the data stays aligned and in place.
    tail = seed.data[end : seed.records[-1][1]]
    head = seed.data[:start] + piece + tail
    data[:] = head + b"\0" * (-len(head) % 32) + seed.data[seed.data_start :]
    if rng.random() < 0.8:
        _put(data, count_at, 8, len(ranges) + step)


Change = Callable[[bytearray, Seed, Sequence[Seed], random.Random], None]
_CHANGES: tuple[Change, ...] = (_structural, _metadata, _flip, _weights, _truncate, _extend, _splice, _move_entry)
_WEIGHTS = (30, 18, 12, 12, 6, 3, 8, 11)
