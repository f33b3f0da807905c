"""The GGUF reader: what a good file says, and a clear error for everything that a bad one can do."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import gguf
import pytest

from gguf_builder import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Entry,
    File,
    Tensor,
    array,
    number,
    small_file,
    string,
)
from tiny_models import TinyModel, write_gguf
from tokenmill.vocabulary.errors import ModelFileError, TokenmillError, UnsupportedModelError
from tokenmill.weights.formats import FILE_FORMATS, UNSUPPORTED_TYPES
from tokenmill.weights.read_gguf import read_gguf


@pytest.fixture
def write(tmp_path: Path):
    def put(contents: File | bytes, name: str = "model.gguf") -> Path:
        path = tmp_path / name
        path.write_bytes(contents.encode() if isinstance(contents, File) else contents)
        return path

    return put


def refused(path: Path, *words: str, kind: type[TokenmillError] = ModelFileError) -> TokenmillError:
    """Reads the file, which must fail with all the words in its message, without a large allocation, at once."""
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(kind) as caught:
            read_gguf(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 1.0
    assert peak < 4 << 20
    message = str(caught.value)
    for word in words:
        assert word in message, message
    assert path.name in message
    return caught.value


@pytest.mark.parametrize("version", [2, 3])
def test_reads_what_is_there(write, version: int) -> None:
    path = write(replace(small_file(), version=version))
    model = read_gguf(path)
    assert model.path == path
    assert model.file_bytes == path.stat().st_size
    assert dict(model.metadata) == {
        "general.architecture": "llama",
        "test.u32": 7,
        "test.f32": 0.5,
        "test.yes": True,
        "test.names": ("a", "é", ""),
        "test.ints": (-1, 0, 1),
        "test.flags": (True, False),
    }
    assert model.metadata["test.yes"] is True
    a, b = model.tensors["a.weight"], model.tensors["b.weight"]
    assert (a.format, a.shape, a.nbytes) == ("F32", (3, 4), 48)
    assert (b.format, b.shape, b.nbytes) == ("Q4_0", (2, 64), 72)
    contents = path.read_bytes()
    assert contents[a.offset : a.offset + a.nbytes] == b"\1" * 48
    assert contents[b.offset : b.offset + b.nbytes] == b"\2" * 72


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (U8, 255),
        (I8, -128),
        (U16, 65535),
        (I16, -32768),
        (U32, 2**32 - 1),
        (I32, -(2**31)),
        (F32, 0.25),
        (U64, 2**64 - 1),
        (I64, -(2**63)),
        (F64, 1e300),
    ],
)
def test_every_number_type_alone_and_in_an_array(write, kind: int, value: float) -> None:
    payload = array(kind, [number(kind, value)] * 3)
    model = read_gguf(write(File([Entry("x.one", kind, number(kind, value)), Entry("x.many", ARRAY, payload)])))
    assert model.metadata["x.one"] == value
    assert model.metadata["x.many"] == (value,) * 3


def assert_equals_the_gguf_package(path: Path) -> None:
    model = read_gguf(path)
    other = gguf.GGUFReader(path)
    assert set(model.metadata) == {key for key in other.fields if not key.startswith("GGUF.")}
    for key, value in model.metadata.items():
        expected = other.fields[key].contents()
        assert (list(value) if isinstance(value, tuple) else value) == expected
    assert set(model.tensors) == {tensor.name for tensor in other.tensors}
    for tensor in other.tensors:
        mine = model.tensors[tensor.name]
        assert mine.format == tensor.tensor_type.name
        assert list(mine.shape) == list(reversed([int(n) for n in tensor.shape]))
        assert (mine.offset, mine.nbytes) == (tensor.data_offset, tensor.n_bytes)


@pytest.mark.parametrize("format_name", [entry.name for entry in FILE_FORMATS])
def test_equals_the_gguf_package(tmp_path: Path, format_name: str) -> None:
    shape = TinyModel("qwen2", embedding=256, head_dim=64, hidden=256, default_format=format_name, tied=False)
    assert_equals_the_gguf_package(write_gguf(tmp_path / "tiny.gguf", shape))


@pytest.mark.scheduled  # the package takes long over large vocabularies
def test_equals_the_gguf_package_on_the_real_models(default_model_path: Path, qwen_model_path: Path) -> None:
    assert_equals_the_gguf_package(default_model_path)
    assert_equals_the_gguf_package(qwen_model_path)


def test_a_vocabulary_of_150_000_tokens_is_read_in_under_a_second(qwen_model_path: Path) -> None:
    times = []
    for _ in range(3):
        start = time.process_time()
        model = read_gguf(qwen_model_path)
        times.append(time.process_time() - start)
    assert len(model.metadata["tokenizer.ggml.tokens"]) == 151936
    assert len(model.tensors) == 291
    assert min(times) < 1.0


def test_the_format_table_is_the_specification() -> None:
    for entry in FILE_FORMATS:
        kind = gguf.GGMLQuantizationType(entry.ggml_type)
        assert kind.name == entry.name
        assert gguf.GGML_QUANT_SIZES[kind] == (entry.block_elements, entry.block_bytes)
    supported = {entry.ggml_type for entry in FILE_FORMATS}
    for kind in gguf.GGMLQuantizationType:
        if kind.value not in supported and kind.value <= max(UNSUPPORTED_TYPES):
            assert UNSUPPORTED_TYPES[kind.value].split()[0] == kind.name


# --- what is no GGUF file at all


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (b"", ["is empty"]),
        (b"GG", ["ends inside its first four bytes"]),
        (b"hello, world\n", ["text file"]),
        (b'{"a": 1}', ["JSON"]),
        (b"PK\x03\x04" + b"\0" * 100, ["ZIP"]),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", ["Git LFS pointer"]),
        (b"<!DOCTYPE html><html><body>404</body></html>", ["web page"]),
        (b"\n  <html>", ["web page"]),
        (struct.pack("<Q", 21) + b'{"t":{"dtype":"F32"}}', ["safetensors"]),
        (struct.pack("<Q", 5000) + b'{"__metadata__":{}', ["safetensors"]),
        (b"\0" * 4096, ["zero bytes"]),
        (b"tjgg" + b"\1\0\0\0", ["old GGML"]),
        (b"FUGG" + b"\0\0\0\3", ["bytes swapped"]),
        (b"\x7fELF\2\1\1", ["executable"]),
        (bytes(range(128, 200)), ["80 81 82 83"]),
        ("日本語のテキスト".encode() * 60, ["text file"]),
    ],
)
def test_says_what_a_file_looks_like(write, contents: bytes, words: list[str]) -> None:
    refused(write(contents), *words)


def test_missing_directory_special_and_forbidden(tmp_path: Path) -> None:
    refused(tmp_path / "nothing.gguf", "No such file")
    (tmp_path / "inside.gguf").write_bytes(small_file().encode())
    refused(tmp_path, "is a directory", "inside.gguf")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "not a regular file")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    refused(loop, "cannot be read")
    refused(tmp_path / ("x" * 300), "cannot be read")
    with pytest.raises(ModelFileError, match="no file can have this name"):
        read_gguf(Path("nul\0name"))


def test_no_permission(write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(small_file())
    path.chmod(0)
    if os.geteuid() == 0:  # root reads everything: let the system call say what it would say to a user

        def deny(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", deny)
    refused(path, "Permission denied")


@pytest.mark.parametrize("swapped", [2, 3])
def test_big_endian_is_recognised(write, swapped: int) -> None:
    contents = b"GGUF" + struct.pack(">IQQ", swapped, 0, 0)
    refused(write(contents), f"big-endian GGUF v{swapped}", kind=UnsupportedModelError)


@pytest.mark.parametrize(("version", "kind"), [(1, UnsupportedModelError), (4, UnsupportedModelError)])
def test_other_versions(write, version: int, kind: type[TokenmillError]) -> None:
    refused(write(replace(small_file(), version=version)), f"version {version}", kind=kind)


def test_impossible_version(write) -> None:
    refused(write(replace(small_file(), version=0)), "version 0")
    refused(write(replace(small_file(), version=0xDEADBEEF)), "version")


# --- counts, lengths, types


def test_a_million_tensors_or_entries_are_refused_at_once(write) -> None:
    for file in (replace(small_file(), entry_count=1 << 20), replace(small_file(), tensor_count=1 << 20)):
        path = write(file)
        with path.open("r+b") as stream:
            stream.truncate(1 << 30)
        refused(path, "more than any model has")


@pytest.mark.parametrize("count", [8, 1000, 2**32, 2**60, 2**64 - 1])
def test_absurd_counts(write, count: int) -> None:
    refused(write(replace(small_file(), entry_count=count)))
    refused(write(replace(small_file(), tensor_count=count)))


@pytest.mark.parametrize("length", [1 << 12, 1 << 31, 1 << 60, (1 << 64) - 1])
def test_absurd_lengths(write, length: int) -> None:
    refused(write(small_file().with_entry(Entry("x", STRING, string("abc", length)))), "bytes", "key x")
    items = [string("abc", length)]
    refused(write(small_file().with_entry(Entry("x", ARRAY, array(STRING, items)))), "bytes", "key x")
    refused(write(small_file().with_entry(Entry("x", ARRAY, array(STRING, [], length)))), "elements", "key x")
    refused(write(small_file().with_entry(Entry("x", ARRAY, array(U64, [], length)))), "elements", "key x")
    refused(write(small_file().with_entry(Entry("x", ARRAY, array(BOOL, [], length)))), "elements", "key x")
    key = string("k", length) + struct.pack("<I", U8) + b"\1"
    raw = File([], []).encode()[:16] + struct.pack("<Q", 1) + key
    refused(write(raw), "key")


def test_a_long_array_in_a_sparse_file_is_refused_before_it_is_read(write) -> None:
    path = write(File([Entry("x", ARRAY, array(U8, [], 1 << 33))]))
    with path.open("r+b") as stream:
        stream.truncate(1 << 34)
    refused(path, "more than")
    path = write(File([Entry("x", STRING, string("", 1 << 33))]))
    with path.open("r+b") as stream:
        stream.truncate(1 << 34)
    refused(path, "at most")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry("x", 13, b"\0" * 8), ["unknown value type 13"]),
        (Entry("x", 2**32 - 1, b"\0" * 8), ["unknown value type"]),
        (Entry("x", ARRAY, array(99, [b"\0" * 8])), ["unknown element type 99"]),
        (Entry("x", ARRAY, array(ARRAY, [array(U8, [b"\1"])])), ["array of arrays"]),
        (Entry("x", BOOL, b"\2"), ["boolean"]),
        (Entry("x", ARRAY, array(BOOL, [b"\1", b"\7", b"\0"])), ["boolean"]),
        (Entry("", U8, b"\1"), ["key is empty"]),
        (Entry("test.u32", U8, b"\1"), ["twice"]),
        (Entry(b"\xff\xfe", U8, b"\1"), ["not UTF-8"]),
        (Entry("x", STRING, string(b"ab\xff")), ["not UTF-8", "byte 2"]),
        (Entry("x", ARRAY, array(STRING, [string("ok"), string(b"\xc3")])), ["element 1", "not UTF-8"]),
        (Entry("k" * 70000, U8, b"\1"), ["at most 65535"]),
        (Entry("general.alignment", U32, number(U32, 0)), ["power of two"]),
        (Entry("general.alignment", U32, number(U32, 4)), ["power of two"]),
        (Entry("general.alignment", U32, number(U32, 48)), ["power of two"]),
        (Entry("general.alignment", STRING, string("32")), ["not an integer"]),
        (Entry("general.alignment", BOOL, b"\1"), ["not an integer"]),
        (Entry("general.alignment", U32, number(U32, 1 << 31)), ["past the end"]),
    ],
)
def test_bad_metadata(write, entry: Entry, words: list[str]) -> None:
    refused(write(small_file().with_entry(entry)), *words)


def test_control_characters_of_a_file_do_not_reach_the_terminal(write) -> None:
    error = refused(write(small_file().with_entry(Entry("\x1b[2Jx", 77, b""))), "unknown value type")
    assert "\x1b" not in str(error)
    error = refused(write(small_file().with_tensor(Tensor("\x1b[2J", (1,), 999, b""))), "unknown type")
    assert "\x1b" not in str(error)


def test_a_bad_byte_in_a_description_does_not_stop_a_model(write) -> None:
    model = read_gguf(write(small_file().with_entry(Entry("general.description", STRING, string(b"caf\xe9")))))
    assert model.metadata["general.description"] == "caf�"


# --- tensors


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (Tensor("a.weight", (4,), 0, b"\0" * 16), ["twice"]),
        (Tensor("", (4,), 0, b"\0" * 16), ["name is empty"]),
        (Tensor("n" * 65, (4,), 0, b"\0" * 16), ["at most 64"]),
        (Tensor("c", (), 0, b""), ["0 dimensions"]),
        (Tensor("c", (1, 1, 1, 1, 1), 0, b"\0" * 4), ["5 dimensions"]),
        (Tensor("c", (1,), 0, b"\0" * 4, dimension_count=2**32 - 1), ["dimensions"]),
        (Tensor("c", (0, 4), 0, b""), ["impossible dimensions"]),
        (Tensor("c", (2**32, 2**32), 0, b""), ["impossible dimensions"]),
        (Tensor("c", (2**63, 2, 2, 2), 0, b""), ["impossible dimensions"]),
        (Tensor("c", (2**40,), 0, b""), ["past the end"]),
        (Tensor("c", (33,), 2, b"\0" * 36), ["multiple of 32"]),
        (Tensor("c", (128,), 12, b"\0" * 144), ["multiple of 256"]),
        (Tensor("c", (4,), 0, b"\0" * 16, offset=1), ["not a multiple of 32"]),
        (Tensor("c", (4,), 0, b"\0" * 16, offset=2**63), ["past the end"]),
        (Tensor("c", (4,), 0, b"\0" * 16, offset=2**64 - 32), ["past the end"]),
        (Tensor("c", (4,), 0, b"\0" * 16, offset=0), ["overlaps"]),
        (Tensor("c", (4,), 0, b"\0" * 16, offset=96), ["overlaps"]),
        (Tensor("c", (4,), 77, b"\0" * 16), ["unknown type 77"]),
        (Tensor("c", (4,), 2**32 - 1, b"\0" * 16), ["unknown type"]),
    ],
)
def test_bad_tensors(write, tensor: Tensor, words: list[str]) -> None:
    refused(write(small_file().with_tensor(tensor)), *words)


@pytest.mark.parametrize(("kind", "name"), [(10, "Q2_K"), (17, "IQ2_XS"), (23, "IQ4_XS"), (39, "MXFP4"), (28, "F64")])
def test_unsupported_formats_are_named(write, kind: int, name: str) -> None:
    path = write(small_file().with_tensor(Tensor("blk.0.w", (256,), kind, b"\0" * 256)))
    error = refused(path, f"tensor blk.0.w is stored as {name}", "supported: F32, ", kind=UnsupportedModelError)
    assert "Q4_K" in error.what


def test_every_truncation_is_an_error(write) -> None:
    whole = small_file().encode()
    for length in range(len(whole)):
        path = write(whole[:length])
        with pytest.raises(ModelFileError):
            read_gguf(path)


def test_other_alignment_moves_the_data(write) -> None:
    file = replace(small_file().with_entry(Entry("general.alignment", U32, number(U32, 256))), alignment=256)
    path = write(file)
    tensor = read_gguf(path).tensors["b.weight"]
    assert tensor.offset % 256 == 0
    assert path.read_bytes()[tensor.offset : tensor.offset + tensor.nbytes] == b"\2" * 72


def test_only_the_header_is_read(write) -> None:
    contents = small_file().encode()
    path = write(contents)
    tensor = Tensor("huge", (1 << 20, 1 << 10), 0, b"", offset=160)
    path.write_bytes(small_file().with_tensor(tensor).encode())
    with path.open("r+b") as stream:
        stream.truncate(5 << 30)
    tracemalloc.start()
    model = read_gguf(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.tensors["huge"].nbytes == 4 << 30
    assert peak < 4 << 20
