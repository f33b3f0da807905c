"""Reads the header of a GGUF v2/v3 file that nobody vouches for.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Tensor data is not read here; every tensor's place in
the file is checked, so that whoever reads it later stays inside.
"""

from __future__ import annotations

import itertools
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tokenmill.vocabulary.errors import ModelFileError, UnsupportedModelError
from tokenmill.vocabulary.model_file import MetadataValue, ModelFile, TensorInfo
from tokenmill.weights.file_kind import recognise
from tokenmill.weights.formats import FORMAT_BY_TYPE, UNSUPPORTED_TYPES, supported_names
from tokenmill.weights.gguf_bytes import MAX_ENTRIES, MAX_TENSORS, HeaderCursor
from tokenmill.weights.gguf_splits import find_parts, merge_parts

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

_PLAUSIBLE_VERSION = 1000  # a number above is damage, not a version to come
_MIN_ALIGNMENT = 8
_MAX_KEY_BYTES = 65535  # by the specification
_MAX_TENSOR_NAME_BYTES = 64  # by the specification
_MAX_DIMENSIONS = 4
_MIN_METADATA_BYTES = 8 + 1 + 4 + 1  # key length, a one-letter key, value type, the smallest value
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # name length, a one-letter name, dimensions, one of them, type, offset

_TYPE_BOOL = 7
_TYPE_STRING = 8
_TYPE_ARRAY = 9
_NUMBER_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}


def read_gguf(path: Path) -> ModelFile:
    """Reads and checks a model's header; for a split model, the headers of all its parts.

    Args:
        path: a GGUF file, or any part of a split one (`NAME-00001-of-00003.gguf`).

    Returns:
        The metadata and tensor table. Every tensor lies inside its file, aligned, overlapping no other.

    Raises:
        ModelFileError: the file is missing, unreadable, damaged, or no GGUF file.
        UnsupportedModelError: a well-formed file of another version, byte order or tensor format.
    """
    first = _read_part(path)
    parts = find_parts(path, first.metadata)
    if not parts:
        return ModelFile(path=path, metadata=first.metadata, tensors=first.tensors, file_bytes=first.file_bytes)
    return merge_parts([first if part == path else _read_part(part) for part in parts])


def _read_part(path: Path) -> ModelFile:
    """Reads one file by itself."""
    if "\0" in str(path):
        raise ModelFileError("no file can have this name", where=repr(str(path)))
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            raise ModelFileError("is a directory", where=str(path), hint=_directory_hint(path))
        if not stat.S_ISREG(info.st_mode):
            raise ModelFileError("is not a regular file", where=str(path))
        with path.open("rb") as stream:
            return _read_stream(stream, path, info.st_size)
    except OSError as error:
        hint = "check the path, or `tokenmill pull` the model" if isinstance(error, FileNotFoundError) else ""
        raise ModelFileError(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error


def _directory_hint(path: Path) -> str:
    models = sorted(entry.name for entry in path.glob("*.gguf"))[:5]
    return f"give one of its files: {', '.join(models)}" if models else "give the .gguf file itself"


def _read_stream(stream: BinaryIO, path: Path, file_bytes: int) -> ModelFile:
    cursor = HeaderCursor(stream, path, file_bytes)
    _check_magic(cursor, path, file_bytes)
    _check_version(cursor, path)
    cursor.subject = "header"
    tensor_count = cursor.u64("the tensor count")
    metadata_count = cursor.u64("the metadata count")
    for count, least, most, thing in (
        (metadata_count, _MIN_METADATA_BYTES, MAX_ENTRIES, "metadata entries"),
        (tensor_count, _MIN_TENSOR_BYTES, MAX_TENSORS, "tensors"),
    ):
        if count * least > cursor.remaining:
            cursor.fail(
                f"claims {count} {thing}, more than the file's {file_bytes} bytes can hold",
                hint="the file is truncated or damaged; download it again",
            )
        if count > most:
            cursor.fail(f"claims {count} {thing}, more than any model has")
    metadata = _read_metadata(cursor, metadata_count)
    alignment = _alignment(cursor, metadata)
    records = [_read_tensor_record(cursor, index, path) for index in range(tensor_count)]
    data_start = -(-cursor.position // alignment) * alignment
    tensors = _place_tensors(records, path, data_start, alignment, file_bytes)
    return ModelFile(path=path, metadata=metadata, tensors=tensors, file_bytes=file_bytes)


def _check_magic(cursor: HeaderCursor, path: Path, file_bytes: int) -> None:
    if file_bytes == 0:
        raise ModelFileError("is empty", where=str(path), hint="an interrupted download leaves such a file")
    head = cursor.raw(min(file_bytes, 512), "the magic")
    cursor.position = min(4, file_bytes)
    if head[:4] != MAGIC:
        if len(head) < 4 and MAGIC.startswith(head):
            cursor.fail("the file ends inside its first four bytes", hint="download it again")
        kind = recognise(head)
        raise ModelFileError(f"is not a GGUF model: it looks like {kind.what}", where=str(path), hint=kind.hint)


def _check_version(cursor: HeaderCursor, path: Path) -> None:
    version = cursor.u32("the version")
    if version in SUPPORTED_VERSIONS:
        return
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
    if swapped in (1, *SUPPORTED_VERSIONS):
        raise UnsupportedModelError(
            f"is a big-endian GGUF v{swapped} file",
            where=str(path),
            hint="get the little-endian file, or convert it with gguf's `gguf-convert-endian`",
        )
    what = f"is GGUF version {version}; versions 2 and 3 are supported"
    if not 1 <= version <= _PLAUSIBLE_VERSION:
        raise ModelFileError(what, where=str(path), hint="the file is damaged, or no GGUF file at all")
    newer = version > max(SUPPORTED_VERSIONS)
    hint = "the file is newer than this tokenmill" if newer else "get a newer file of the model"
    raise UnsupportedModelError(what, where=str(path), hint=hint)


def _read_metadata(cursor: HeaderCursor, count: int) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    for index in range(count):
        cursor.subject = f"metadata entry {index}"
        key = cursor.string("its key", limit=_MAX_KEY_BYTES)
        if not key:
            cursor.fail("its key is empty")
        cursor.subject = f"metadata key {_shown(key)}"
        if key in metadata:
            cursor.fail("appears twice")
        metadata[key] = _read_value(cursor, cursor.u32("its type"), key)
    return metadata


def _read_value(cursor: HeaderCursor, kind: int, key: str) -> MetadataValue:
    # Descriptions are for people: one bad byte there must not stop a model. Anything that has a meaning is strict.
    errors = "replace" if key.startswith("general.") else "strict"
    if kind == _TYPE_STRING:
        return cursor.string("its value", errors=errors)
    if kind == _TYPE_ARRAY:
        return _read_array(cursor, errors)
    if kind == _TYPE_BOOL:
        return _as_bools(cursor, cursor.raw(1, "its value"))[0]
    code = _NUMBER_CODES.get(kind)
    if code is None:
        cursor.fail(f"has unknown value type {kind}", hint="the file is damaged, or newer than this tokenmill")
    number: int | float = struct.unpack(f"<{code}", cursor.raw(struct.calcsize(f"<{code}"), "its value"))[0]
    return number


def _read_array(cursor: HeaderCursor, errors: str) -> MetadataValue:
    kind = cursor.u32("its element type")
    count = cursor.u64("its element count")
    if kind == _TYPE_STRING:
        return cursor.string_array(count, errors=errors)
    if kind == _TYPE_BOOL:
        cursor.count_elements(count, 1)
        return _as_bools(cursor, cursor.raw(count, "its elements"))
    if kind == _TYPE_ARRAY:
        cursor.fail("is an array of arrays, which no known model needs and is not supported")
    code = _NUMBER_CODES.get(kind)
    if code is None:
        cursor.fail(f"has unknown element type {kind}", hint="the file is damaged, or newer than this tokenmill")
    element_bytes = struct.calcsize(f"<{code}")
    cursor.count_elements(count, element_bytes)
    numbers: tuple[int, ...] = struct.unpack(f"<{count}{code}", cursor.raw(count * element_bytes, "its elements"))
    return numbers


def _as_bools(cursor: HeaderCursor, data: bytes) -> tuple[bool, ...]:
    largest = max(data, default=0)
    if largest > 1:
        cursor.fail(f"holds {largest} where a boolean (0 or 1) belongs")
    return tuple(byte == 1 for byte in data)


def _alignment(cursor: HeaderCursor, metadata: Mapping[str, MetadataValue]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    cursor.subject = "metadata key general.alignment"
    if not isinstance(value, int) or isinstance(value, bool):
        cursor.fail("is not an integer")
    if value < _MIN_ALIGNMENT or value & (value - 1) != 0:
        cursor.fail(f"is {value}; a power of two of at least {_MIN_ALIGNMENT} is needed")
    return value


@dataclass(frozen=True, slots=True)
class _TensorRecord:
    name: str
    format: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int  # from the start of the data section


def _read_tensor_record(cursor: HeaderCursor, index: int, path: Path) -> _TensorRecord:
    cursor.subject = f"tensor {index}"
    name = cursor.string("its name", limit=_MAX_TENSOR_NAME_BYTES)
    if not name:
        cursor.fail("its name is empty")
    cursor.subject = f"tensor {_shown(name)}"
    dimension_count = cursor.u32("the number of dimensions")
    if not 1 <= dimension_count <= _MAX_DIMENSIONS:
        cursor.fail(f"has {dimension_count} dimensions; 1 to {_MAX_DIMENSIONS} are possible")
    dimensions = tuple(cursor.u64("a dimension") for _ in range(dimension_count))
    ggml_type = cursor.u32("its type")
    offset = cursor.u64("its offset")
    format_ = FORMAT_BY_TYPE.get(ggml_type)
    if format_ is None and ggml_type in UNSUPPORTED_TYPES:
        raise UnsupportedModelError(
            f"tensor {_shown(name)} is stored as {UNSUPPORTED_TYPES[ggml_type]}, which is not supported; "
            f"supported: {supported_names()}",
            where=str(path),
            hint="get the model in another quantization, such as Q4_K_M or Q8_0",
        )
    if format_ is None:
        cursor.fail(f"has unknown type {ggml_type}", hint="the file is damaged, or newer than this tokenmill")
    elements = 1
    for dimension in dimensions:
        elements *= dimension
        if dimension == 0 or elements >= 1 << 63:
            cursor.fail(f"has impossible dimensions {list(dimensions)}")
    columns = dimensions[0]
    if columns % format_.block_elements != 0:
        cursor.fail(f"has rows of {columns} elements; {format_.name} needs a multiple of {format_.block_elements}")
    nbytes = elements // format_.block_elements * format_.block_bytes
    return _TensorRecord(name, format_.name, tuple(reversed(dimensions)), nbytes, offset)


def _place_tensors(
    records: list[_TensorRecord], path: Path, data_start: int, alignment: int, file_bytes: int
) -> dict[str, TensorInfo]:
    """Checks every tensor's place and returns the table in file order of the header."""
    tensors: dict[str, TensorInfo] = {}
    for record in records:
        where = f"{path}: tensor {_shown(record.name)}"
        if record.name in tensors:
            raise ModelFileError("appears twice", where=where)
        if record.offset % alignment != 0:
            raise ModelFileError(f"its offset {record.offset} is not a multiple of {alignment}", where=where)
        start = data_start + record.offset
        if start + record.nbytes > file_bytes:
            raise ModelFileError(
                f"its {record.nbytes} bytes at {start} reach past the end of the file ({file_bytes} bytes)",
                where=where,
                hint="the file is truncated or damaged; download it again",
            )
        tensors[record.name] = TensorInfo(record.name, record.format, record.shape, path, start, record.nbytes)
    ordered = sorted(tensors.values(), key=lambda tensor: tensor.offset)
    for before, after in itertools.pairwise(ordered):
        if before.offset + before.nbytes > after.offset:
            raise ModelFileError(f"overlaps tensor {_shown(before.name)}", where=f"{path}: tensor {_shown(after.name)}")
    return tensors


def _shown(name: str) -> str:
    """A name from the file, safe to print: control characters escaped, long names cut."""
    text = name if name.isprintable() else ascii(name)
    return text if len(text) <= 100 else f"{text[:100]}…"
