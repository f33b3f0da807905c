"""Split models: all parts are found from any of them, checked against each other and merged."""

from __future__ import annotations

from pathlib import Path

import pytest

from gguf_builder import I32, STRING, U16, Entry, File, Tensor, number, string
from tokenmill.vocabulary.errors import ModelFileError
from tokenmill.weights.gguf_splits import part_names
from tokenmill.weights.read_gguf import read_gguf


def part(number_: int, count: int, total: int, names: tuple[str, ...]) -> File:
    entries = [
        Entry("split.no", U16, number(U16, number_)),
        Entry("split.count", U16, number(U16, count)),
        Entry("split.tensors.count", I32, number(I32, total)),
    ]
    if number_ == 0:
        entries.append(Entry("general.architecture", STRING, string("llama")))
    return File(entries, [Tensor(name, (8,), 0, bytes([number_]) * 32) for name in names])


def write_all(folder: Path, *files: File) -> list[Path]:
    paths = [folder / f"m-{number:05d}-of-{len(files):05d}.gguf" for number in range(1, len(files) + 1)]
    for path, file in zip(paths, files, strict=True):
        path.write_bytes(file.encode())
    return paths


def good(folder: Path) -> list[Path]:
    return write_all(folder, part(0, 3, 4, ()), part(1, 3, 4, ("a", "b")), part(2, 3, 4, ("c", "d")))


@pytest.mark.parametrize("given", [0, 1, 2])
def test_all_parts_from_any_part(tmp_path: Path, given: int) -> None:
    paths = good(tmp_path)
    model = read_gguf(paths[given])
    assert model.path == paths[0]
    assert model.metadata["general.architecture"] == "llama"
    assert {name: tensor.path for name, tensor in model.tensors.items()} == {
        "a": paths[1],
        "b": paths[1],
        "c": paths[2],
        "d": paths[2],
    }
    assert model.file_bytes == sum(path.stat().st_size for path in paths)


def refused(path: Path, *words: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        read_gguf(path)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_missing_part(tmp_path: Path) -> None:
    paths = good(tmp_path)
    paths[1].unlink()
    refused(paths[0], "missing", "m-00002-of-00003.gguf")


def test_damaged_part(tmp_path: Path) -> None:
    paths = good(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-8])
    refused(paths[0], "m-00003-of-00003.gguf", "past the end")


def test_renamed_part(tmp_path: Path) -> None:
    path = good(tmp_path)[0].rename(tmp_path / "model.gguf")
    refused(path, "one of 3 parts", "name")


def test_name_and_metadata_disagree(tmp_path: Path) -> None:
    paths = write_all(tmp_path, part(0, 3, 2, ("a",)), part(1, 3, 2, ("b",)))
    refused(paths[0], "2 parts", "3")


def test_parts_in_the_wrong_order(tmp_path: Path) -> None:
    paths = write_all(tmp_path, part(0, 2, 2, ("a",)), part(0, 2, 2, ("b",)))
    refused(paths[0], "says it is part 1 of 2, expected part 2 of 2")


def test_part_of_no_model(tmp_path: Path) -> None:
    paths = write_all(tmp_path, part(0, 2, 2, ("a",)), File([], [Tensor("b", (8,), 0, b"\0" * 32)]))
    refused(paths[0], "split.no")


def test_same_tensor_in_two_parts(tmp_path: Path) -> None:
    paths = write_all(tmp_path, part(0, 2, 2, ("a",)), part(1, 2, 2, ("a",)))
    refused(paths[0], "also in")


def test_tensors_do_not_add_up(tmp_path: Path) -> None:
    paths = write_all(tmp_path, part(0, 2, 5, ("a",)), part(1, 2, 5, ("b",)))
    refused(paths[0], "2 tensors", "5")


def test_one_part_of_one_is_a_whole_model(tmp_path: Path) -> None:
    path = tmp_path / "any name.gguf"
    path.write_bytes(part(0, 1, 1, ("a",)).encode())
    assert list(read_gguf(path).tensors) == ["a"]


def test_part_names() -> None:
    assert part_names("x-00002-of-00002.gguf") == ("x-00001-of-00002.gguf", "x-00002-of-00002.gguf")
    assert part_names("x.gguf") is None
    assert part_names("x-1-of-2.gguf") is None
