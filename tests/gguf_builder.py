"""Writes GGUF files byte by byte, so that a test can lie in any field."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}


def string(text: str | bytes, length: int | None = None) -> bytes:
    """A length-prefixed string; `length` overrides the prefix."""
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data) if length is None else length) + data


def number(kind: int, value: float) -> bytes:
    return struct.pack(f"<{_CODES[kind]}", value)


def array(kind: int, items: list[bytes], count: int | None = None) -> bytes:
    """Element type, count (`count` overrides it), elements."""
    return struct.pack("<IQ", kind, len(items) if count is None else count) + b"".join(items)


@dataclass(frozen=True)
class Entry:
    """A metadata entry; `payload` is the value's bytes after its type."""

    key: str | bytes
    kind: int
    payload: bytes

    def encode(self) -> bytes:
        return string(self.key) + struct.pack("<I", self.kind) + self.payload


@dataclass(frozen=True)
class Tensor:
    """A tensor record and its data; dimensions in GGUF's order (columns first)."""

    name: str | bytes
    dimensions: tuple[int, ...]
    ggml_type: int
    data: bytes
    offset: int | None = None  # None: where its data is put
    dimension_count: int | None = None

    def encode(self, offset: int) -> bytes:
        count = len(self.dimensions) if self.dimension_count is None else self.dimension_count
        head = string(self.name) + struct.pack("<I", count) + struct.pack(f"<{len(self.dimensions)}Q", *self.dimensions)
        return head + struct.pack("<IQ", self.ggml_type, offset if self.offset is None else self.offset)


@dataclass(frozen=True)
class File:
    """A whole file. Counts are those of the lists unless overridden."""

    entries: list[Entry] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    version: int = 3
    magic: bytes = b"GGUF"
    alignment: int = 32
    tensor_count: int | None = None
    entry_count: int | None = None

    def encode(self) -> bytes:
        offsets: list[int] = []
        data = b""
        for tensor in self.tensors:
            data += b"\0" * (-len(data) % self.alignment)
            offsets.append(len(data))
            data += tensor.data
        head = self.magic + struct.pack(
            "<IQQ",
            self.version,
            len(self.tensors) if self.tensor_count is None else self.tensor_count,
            len(self.entries) if self.entry_count is None else self.entry_count,
        )
        head += b"".join(entry.encode() for entry in self.entries)
        head += b"".join(tensor.encode(offset) for tensor, offset in zip(self.tensors, offsets, strict=True))
        return head + b"\0" * (-len(head) % self.alignment) + data if self.tensors else head

    def with_entry(self, *entries: Entry) -> File:
        return replace(self, entries=[*self.entries, *entries])

    def with_tensor(self, *tensors: Tensor) -> File:
        return replace(self, tensors=[*self.tensors, *tensors])


def small_file() -> File:
    """A valid file: one entry of every kind that matters and two tensors."""
    return File(
        entries=[
            Entry("general.architecture", STRING, string("llama")),
            Entry("test.u32", U32, number(U32, 7)),
            Entry("test.f32", F32, number(F32, 0.5)),
            Entry("test.yes", BOOL, number(BOOL, True)),
            Entry("test.names", ARRAY, array(STRING, [string("a"), string("é"), string("")])),
            Entry("test.ints", ARRAY, array(I32, [number(I32, value) for value in (-1, 0, 1)])),
            Entry("test.flags", ARRAY, array(BOOL, [number(BOOL, True), number(BOOL, False)])),
        ],
        tensors=[
            Tensor("a.weight", (4, 3), 0, b"\1" * 48),
            Tensor("b.weight", (64, 2), 2, b"\2" * 72),
        ],
    )
