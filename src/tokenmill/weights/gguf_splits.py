"""Models split over several GGUF files, named `NAME-00001-of-00003.gguf` and marked by `split.*` metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenmill.vocabulary.errors import ModelFileError
from tokenmill.vocabulary.model_file import MetadataValue, ModelFile, TensorInfo

KEY_NUMBER = "split.no"
KEY_COUNT = "split.count"
KEY_TENSORS = "split.tensors.count"

_PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def part_names(name: str) -> tuple[str, ...] | None:
    """All file names of the split model that `name` is a part of, in order; None when it is not named as a part."""
    match = _PART_NAME.fullmatch(name)
    if match is None:
        return None
    count = int(match["count"])
    return tuple(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1))


def find_parts(path: Path, metadata: Mapping[str, MetadataValue]) -> tuple[Path, ...]:
    """The parts of the model that `path` belongs to, first part first; empty when it is a whole model by itself.

    Raises:
        ModelFileError: the metadata speaks of parts that the file's name or its folder does not show.
    """
    count = _integer(path, metadata, KEY_COUNT, default=1)
    if count <= 1:
        return ()
    names = part_names(path.name)
    if names is None or path.name not in names:
        raise ModelFileError(
            f"is one of {count} parts, and its name does not say which",
            where=str(path),
            hint="give the parts their names back: NAME-00001-of-00003.gguf",
        )
    if len(names) != count:
        raise ModelFileError(f"its name speaks of {len(names)} parts, its metadata of {count}", where=str(path))
    parts = tuple(path.with_name(name) for name in names)
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise ModelFileError(
            f"is one of {count} parts and these are missing: {shown}",
            where=str(path),
            hint="put all parts in one folder",
        )
    return parts


def merge_parts(parts: Sequence[ModelFile]) -> ModelFile:
    """One model from the parts of a split one, first part first. The metadata is the first part's.

    Raises:
        ModelFileError: a part is out of place, holds another part's tensors, or the tensors do not add up.
    """
    first = parts[0]
    tensors: dict[str, TensorInfo] = {}
    for number, part in enumerate(parts):
        found = (_integer(part.path, part.metadata, KEY_NUMBER), _integer(part.path, part.metadata, KEY_COUNT))
        if found != (number, len(parts)):
            raise ModelFileError(
                f"says it is part {found[0] + 1} of {found[1]}, expected part {number + 1} of {len(parts)}",
                where=str(part.path),
                hint="parts of different models may have been mixed",
            )
        for tensor in part.tensors.values():
            if tensor.name in tensors:
                raise ModelFileError(
                    f"tensor {tensor.name!a} is also in {tensors[tensor.name].path.name}", where=str(part.path)
                )
            tensors[tensor.name] = tensor
    expected = _integer(first.path, first.metadata, KEY_TENSORS, default=len(tensors))
    if expected != len(tensors):
        raise ModelFileError(
            f"the parts hold {len(tensors)} tensors, the first part speaks of {expected}",
            where=str(first.path),
            hint="parts of different models may have been mixed",
        )
    return ModelFile(
        path=first.path,
        metadata=first.metadata,
        tensors=tensors,
        file_bytes=sum(part.file_bytes for part in parts),
    )


def _integer(path: Path, metadata: Mapping[str, MetadataValue], key: str, default: int | None = None) -> int:
    value = metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ModelFileError(f"its metadata key {key} is missing or not an integer", where=str(path))
    return value
