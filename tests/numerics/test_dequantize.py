"""Every weight format decodes to exactly the numbers that the `gguf` package decodes it to."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tokenmill import _native

# name: (elements per block, bytes per block, offsets of the block's fp16 scales)
BLOCKS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "Q4_0": (32, 18, (0,)),
    "Q4_1": (32, 20, (0, 2)),
    "Q5_0": (32, 22, (0,)),
    "Q5_1": (32, 24, (0, 2)),
    "Q8_0": (32, 34, (0,)),
    "Q4_K": (256, 144, (0, 2)),
    "Q5_K": (256, 176, (0, 2)),
    "Q6_K": (256, 210, (208,)),
    "IQ4_NL": (32, 18, (0,)),
}
FLOATS = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}
FINITE_HALVES = np.arange(65536, dtype=np.uint16)[np.isfinite(np.arange(65536, dtype=np.uint16).view(np.float16))]


def expected(format_name: str, data: NDArray[np.uint8]) -> NDArray[np.float32]:
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[format_name])


def assert_same_bits(actual: NDArray[np.float32], wanted: NDArray[np.float32]) -> None:
    assert actual.dtype == wanted.dtype == np.float32
    np.testing.assert_array_equal(actual.view(np.uint32), wanted.reshape(actual.shape).view(np.uint32))


@pytest.mark.parametrize("format_name", BLOCKS)
def test_random_blocks_with_every_finite_scale(format_name: str) -> None:
    elements, block_bytes, scales = BLOCKS[format_name]
    rng = np.random.default_rng(7)
    blocks = rng.integers(0, 256, (len(FINITE_HALVES), block_bytes), dtype=np.uint8)
    for number, offset in enumerate(scales):
        halves = FINITE_HALVES if number == 0 else rng.permutation(FINITE_HALVES)
        blocks[:, offset : offset + 2] = halves.astype("<u2").view(np.uint8).reshape(-1, 2)
    data = blocks.reshape(-1, 4 * block_bytes)
    assert_same_bits(_native.dequantize(format_name, data.tobytes(), 4 * elements), expected(format_name, data))


@pytest.mark.parametrize("format_name", BLOCKS)
@pytest.mark.parametrize("byte", [0x00, 0xFF, 0x0F, 0xF0, 0x80, 0x7F])
def test_extreme_blocks(format_name: str, byte: int) -> None:
    elements, block_bytes, scales = BLOCKS[format_name]
    block = np.full((1, block_bytes), byte, dtype=np.uint8)
    for offset in scales:
        block[0, offset : offset + 2] = np.array([1.5], dtype="<f2").view(np.uint8)
    assert_same_bits(_native.dequantize(format_name, block.tobytes(), elements), expected(format_name, block))


@pytest.mark.parametrize("format_name", FLOATS)
def test_floats(format_name: str) -> None:
    kind = FLOATS[format_name]
    if kind is np.uint16:
        bits = np.arange(65536, dtype=np.uint32).astype(kind)
    else:
        bits = np.random.default_rng(7).integers(0, 1 << 32, 65536, dtype=np.uint64).astype(kind)
    data = bits.reshape(64, -1).view(np.uint8)
    wanted = expected(format_name, data)
    actual = _native.dequantize(format_name, data.tobytes(), 1024)
    finite = np.isfinite(wanted)
    assert_same_bits(actual[finite], wanted[finite])
    assert not np.isfinite(actual[~finite]).any()


@pytest.mark.parametrize("format_name", [*BLOCKS, *FLOATS])
def test_sizes_that_do_not_fit(format_name: str) -> None:
    elements, block_bytes = (
        BLOCKS[format_name][:2] if format_name in BLOCKS else (1, np.dtype(FLOATS[format_name]).itemsize)
    )
    with pytest.raises(ValueError, match=r".+"):
        _native.dequantize(format_name, bytes(3 * block_bytes - 1), elements)
    with pytest.raises(ValueError, match=r".+"):
        _native.dequantize(format_name, bytes(block_bytes), 0)
    with pytest.raises(ValueError, match=r".+"):
        _native.dequantize(format_name, bytes(block_bytes), -elements)
