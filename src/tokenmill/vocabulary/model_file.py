"""What a model file holds, as read and checked by weights/ and traded with models/ and text/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# A GGUF metadata value. Arrays of numbers are tuples of numbers; arrays of strings are tuples of str.
MetadataValue = bool | int | float | str | tuple[bool, ...] | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a model file; every field has been checked against the file's size.

    shape is in the order [rows, columns] (the reverse of GGUF's own), so columns (K) is last.
    offset is in bytes from the start of file `path`.
    """

    name: str
    format: str  # "Q4_0", "F32", ... as in native/contract/weight_formats.h
    shape: tuple[int, ...]
    path: Path
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A parsed model (one file, or the first of several splits with all their tensors)."""

    path: Path
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, TensorInfo]
    file_bytes: int  # all splits together
