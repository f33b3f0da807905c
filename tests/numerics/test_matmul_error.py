"""How far each weight format's product may be from binary64 arithmetic on the dequantized weights.

Two bounds each. The derived one holds for any input, element by element, and follows from the contract
(docs/numerics.md): half a quantization step per activation, and one rounding per operation. The permitted one is a
typical error, for normally distributed inputs: it is what the table in docs/numerics.md states.
"""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tiny_models import BLOCKS, random_blocks
from tokenmill import _native

GROUP = 32
UNIT = 2.0**-24  # half a unit in the last place of binary32
ROWS, K, TOKENS = 48, 1024, 9
INTEGERS_BEGIN = {"Q4_1": 4, "Q5_1": 4, "Q4_K": 16, "Q5_K": 16}  # byte of the block; scales and minima come before
INTEGER_FORMATS = [name for name, (elements, _) in BLOCKS.items() if elements > 1]
FLOAT_FORMATS = [name for name, (elements, _) in BLOCKS.items() if elements == 1]
USABLE_SETS = [entry["name"] for entry in _native.kernel_sets() if entry["usable"]]

# ||y - exact|| / ||exact|| over all outputs. Integer formats: a step of amax/127, uniformly distributed error, and
# amax of about 2.4 standard deviations among 32 normal values: 2.4 / 127 / sqrt(12) = 0.55 %, whatever the weights,
# which are exact. Float formats: K roundings of 2^-24 that grow as a random walk.
PERMITTED = dict.fromkeys(INTEGER_FORMATS, 0.0065) | dict.fromkeys(FLOAT_FORMATS, 1e-6)


def inputs(kind: str) -> NDArray[np.float32]:
    """Activations [TOKENS, K]; "outliers" have a few channels a hundred times larger, as real ones do."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((TOKENS, K))
    if kind == "outliers":
        x[:, rng.integers(0, K, 12)] *= 100.0
    if kind == "wide":
        x *= 10.0 ** rng.uniform(-6, 6, (TOKENS, K))
    return x.astype(np.float32)


def dequantized(format_name: str, blocks: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Blocks of ROWS rows to [ROWS, K]."""
    raw = blocks.reshape(ROWS, -1)
    values = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[format_name])
    return values.astype(np.float64).reshape(ROWS, K)


def parts(format_name: str, blocks: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights as scaled integers plus an offset: the offset is what a block with all integers zero decodes to."""
    weights = dequantized(format_name, blocks)
    if format_name not in INTEGERS_BEGIN:
        return weights, np.zeros_like(weights)
    zeroed = blocks.copy()
    zeroed.reshape(-1, BLOCKS[format_name][1])[:, INTEGERS_BEGIN[format_name] :] = 0
    offset = dequantized(format_name, zeroed)
    return weights - offset, offset


def derived_bound(format_name: str, blocks: NDArray[np.uint8], x: NDArray[np.float32]) -> NDArray[np.float64]:
    """The largest possible |y - exact| of each output, [TOKENS, ROWS]."""
    scaled, offset = parts(format_name, blocks)
    inputs = np.abs(x.astype(np.float64))
    if format_name in FLOAT_FORMATS:
        return (K + 2) * UNIT * inputs @ np.abs(scaled).T
    # Each activation is off by at most half a step, and by the roundings of its scale, the inverse and their product.
    step = np.repeat(inputs.reshape(TOKENS, -1, GROUP).max(axis=2) / 127.0, GROUP, axis=1)
    off_by = (0.5 + 127 * 4 * UNIT) * step
    quantization = off_by @ np.abs(scaled + offset).T
    # Two fused multiply-adds a group, two roundings of the products of scales, one of the dequantized weight.
    roundings = 2 * K // GROUP + 4
    return quantization + roundings * UNIT * (inputs + off_by) @ (np.abs(scaled) + np.abs(offset)).T


@pytest.mark.parametrize("kernel_set", USABLE_SETS)
@pytest.mark.parametrize("format_name", BLOCKS)
def test_error_of_each_format(format_name: str, kernel_set: str) -> None:
    data = random_blocks(format_name, ROWS, K, np.random.default_rng(11), 0.03)
    blocks = np.frombuffer(data, dtype=np.uint8)
    w = dequantized(format_name, blocks)
    for kind in ("normal", "outliers", "wide"):
        x = inputs(kind)
        exact = x.astype(np.float64) @ w.T
        error = _native.matmul(kernel_set, format_name, data, ROWS, x, 1) - exact
        assert (np.abs(error) <= derived_bound(format_name, blocks, x)).all()
        if kind == "normal":
            relative = float(np.linalg.norm(error) / np.linalg.norm(exact))
            print(f"{format_name}: {relative:.2e}")
            assert relative <= PERMITTED[format_name]
