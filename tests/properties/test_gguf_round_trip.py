"""What is written is read: any metadata, any tensors, any alignment, byte for byte."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

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
    string,
)
from tokenmill.weights.formats import FILE_FORMATS
from tokenmill.weights.read_gguf import read_gguf

_RANGES = {U8: (0, 2**8), I8: (-(2**7), 2**7), U16: (0, 2**16), I16: (-(2**15), 2**15), U32: (0, 2**32)}
_RANGES |= {I32: (-(2**31), 2**31), U64: (0, 2**64), I64: (-(2**63), 2**63)}
_TEXT = st.text(st.characters(codec="utf-8"), max_size=40)


def scalars(kind: int) -> st.SearchStrategy[object]:
    if kind == STRING:
        return _TEXT
    if kind == BOOL:
        return st.booleans()
    if kind in (F32, F64):
        return st.floats(width=32 if kind == F32 else 64, allow_nan=False)
    low, high = _RANGES[kind]
    return st.integers(low, high - 1)


def encode(kind: int, value: object) -> bytes:
    return string(value) if isinstance(value, str) else number(kind, value)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Value:
    entry: Entry
    expected: object


@st.composite
def values(draw: st.DrawFn, key: str) -> Value:
    kind = draw(st.sampled_from([*_RANGES, F32, F64, BOOL, STRING]))
    if draw(st.booleans()):
        value = draw(scalars(kind))
        return Value(Entry(key, kind, encode(kind, value)), value)
    items = draw(st.lists(scalars(kind), max_size=20))
    return Value(Entry(key, ARRAY, array(kind, [encode(kind, item) for item in items])), tuple(items))


@st.composite
def tensors(draw: st.DrawFn, name: str) -> Tensor:
    entry = draw(st.sampled_from(FILE_FORMATS))
    blocks = draw(st.integers(1, 3))
    rest = draw(st.lists(st.integers(1, 3), max_size=3))
    count = blocks
    for dimension in rest:
        count *= dimension
    data = draw(st.binary(min_size=count * entry.block_bytes, max_size=count * entry.block_bytes))
    return Tensor(name, (blocks * entry.block_elements, *rest), entry.ggml_type, data)


@st.composite
def files(draw: st.DrawFn) -> tuple[File, dict[str, object]]:
    # Prefixed: split.* and general.alignment have a meaning.
    named = [draw(values(f"x.{key}")) for key in draw(st.lists(st.text(max_size=30), unique=True, max_size=6))]
    names = draw(st.lists(st.text(st.characters(codec="ascii"), min_size=1, max_size=64), unique=True, max_size=5))
    alignment = draw(st.sampled_from([8, 16, 32, 64, 4096]))
    entries = [value.entry for value in named] + [Entry("general.alignment", U32, number(U32, alignment))]
    file = File(entries, [draw(tensors(name)) for name in names], draw(st.sampled_from([2, 3])), alignment=alignment)
    expected = {str(value.entry.key): value.expected for value in named} | {"general.alignment": alignment}
    return file, expected


@settings(max_examples=200, deadline=None)
@given(files())
def test_what_is_written_is_read(case: tuple[File, dict[str, object]]) -> None:
    file, expected = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        contents = file.encode()
        path.write_bytes(contents)
        model = read_gguf(path)
    assert dict(model.metadata) == expected
    assert list(model.tensors) == [tensor.name for tensor in file.tensors]
    for tensor in file.tensors:
        info = model.tensors[str(tensor.name)]
        assert info.shape == tuple(reversed(tensor.dimensions))
        assert contents[info.offset : info.offset + info.nbytes] == tensor.data
