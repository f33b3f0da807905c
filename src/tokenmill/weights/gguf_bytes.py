"""A cursor over the header of an untrusted GGUF file. Every length is checked before anything is allocated for it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, NoReturn

from tokenmill.vocabulary.errors import ModelFileError

# No known model comes near these; they keep a hostile file of many gigabytes from turning into Python objects.
MAX_HEADER_BYTES = 256 << 20
MAX_ARRAY_ELEMENTS = 1 << 24  # all arrays of a file together
MAX_STRING_BYTES = 16 << 20
MAX_ENTRIES = 1 << 16
MAX_TENSORS = 1 << 18

_FIRST_READ_BYTES = 1 << 20
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class HeaderCursor:
    """Reads a file's header from its start, growing its buffer as far as the header goes and never past the file.

    Args:
        stream: the file, opened for reading at offset 0.
        path: named in errors.
        file_bytes: the file's size; nothing at or past it is asked for.
    """

    def __init__(self, stream: BinaryIO, path: Path, file_bytes: int) -> None:
        self._stream = stream
        self._path = path
        self._file_bytes = file_bytes
        self._buffer = b""
        self._elements = 0
        self.position = 0
        self.subject = "header"  # what is being read, for error messages

    def fail(self, what: str, *, hint: str = "") -> NoReturn:
        """Raises ModelFileError for the current subject and position."""
        raise ModelFileError(what, where=f"{self._path}: {self.subject} (byte {self.position})", hint=hint)

    @property
    def remaining(self) -> int:
        """Bytes of the file after the cursor."""
        return self._file_bytes - self.position

    def _require(self, count: int, thing: str) -> None:
        """Makes the buffer hold `count` more bytes, or says why it cannot."""
        end = self.position + count
        if end <= len(self._buffer):
            return
        if end > self._file_bytes:
            self.fail(
                f"{thing} needs {count} bytes and the file has {self.remaining} left",
                hint="the file is truncated or damaged; download it again",
            )
        if end > MAX_HEADER_BYTES:
            self.fail(f"the header is longer than {MAX_HEADER_BYTES >> 20} MiB, more than any model needs")
        target = min(max(end, 2 * len(self._buffer), _FIRST_READ_BYTES), self._file_bytes)
        more = self._stream.read(target - len(self._buffer))
        self._buffer += more
        if len(self._buffer) < end:
            self.fail(f"the file ended while {thing} was read; it was longer when it was opened")

    def raw(self, count: int, thing: str) -> bytes:
        """The next `count` bytes."""
        self._require(count, thing)
        start = self.position
        self.position = start + count
        return self._buffer[start : self.position]

    def u32(self, thing: str) -> int:
        """A little-endian unsigned 32-bit number."""
        self._require(4, thing)
        value: int = _U32.unpack_from(self._buffer, self.position)[0]
        self.position += 4
        return value

    def u64(self, thing: str) -> int:
        """A little-endian unsigned 64-bit number."""
        self._require(8, thing)
        value: int = _U64.unpack_from(self._buffer, self.position)[0]
        self.position += 8
        return value

    def string(self, thing: str, *, errors: str = "strict", limit: int = MAX_STRING_BYTES) -> str:
        """A length-prefixed UTF-8 string of at most `limit` bytes."""
        length = self.u64(f"the length of {thing}")
        if length > self.remaining:
            self.position -= 8
            self.fail(
                f"{thing} claims {length} bytes and the file has {self.remaining - 8} left",
                hint="the file is truncated or damaged; download it again",
            )
        if length > limit:
            self.position -= 8
            self.fail(f"{thing} claims {length} bytes; at most {limit} are accepted")
        data = self.raw(length, thing)
        try:
            return data.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            self.position -= length
            self.fail(f"{thing} is not UTF-8 ({error.reason} at its byte {error.start})")

    def count_elements(self, count: int, element_bytes: int) -> None:
        """Checks an array's declared length against what is left of the file, before its elements are read."""
        if count * element_bytes > self.remaining:
            self.fail(
                f"an array claims {count} elements of at least {element_bytes} bytes "
                f"and the file has {self.remaining} bytes left",
                hint="the file is truncated or damaged; download it again",
            )
        self._elements += count
        if self._elements > MAX_ARRAY_ELEMENTS:
            self.fail(f"the arrays hold more than {MAX_ARRAY_ELEMENTS} elements, more than any model needs")

    def string_array(self, count: int, *, errors: str = "strict") -> tuple[str, ...]:
        """`count` length-prefixed strings. The loop is written flat: vocabularies hold hundreds of thousands."""
        self.count_elements(count, 8)
        values: list[str] = []
        append = values.append
        unpack = _U64.unpack_from
        buffer = self._buffer
        position = self.position
        for index in range(count):
            start = position + 8
            end = start + unpack(buffer, position)[0] if start <= len(buffer) else -1
            if end < 0 or end > len(buffer):
                self.position = position
                append(self.string(f"element {index}", errors=errors))
                buffer = self._buffer
                position = self.position
                continue
            try:
                append(buffer[start:end].decode("utf-8", errors))
            except UnicodeDecodeError as error:
                self.position = start
                self.fail(f"element {index} is not UTF-8 ({error.reason} at its byte {error.start})")
            position = end
        self.position = position
        return tuple(values)
