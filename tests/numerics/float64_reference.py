"""A ModelPlan executed in NumPy binary64 over dequantized weights: what the numbers of a model file mean.

Written to be read beside `vocabulary/layer_plan.py`, and to share nothing with native code: no quantized activations,
no blocks of keys, no tables. The only approximations are binary64's own, unless keys and values are asked to be kept
in another type (which lets a test tell the cache's rounding from everything else).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from tokenmill.vocabulary.layer_plan import AttentionPlan, FeedForwardPlan, LinearPlan, ModelPlan, RopePlan

Array = NDArray[np.float64]
ROWS_AT_ONCE = 128  # of logits: 128 x 151,936 in binary64 are 156 MB
QUERIES_AT_ONCE = 256  # of attention: keys after the last of them need no scores


class Weights(Mapping[str, Array]):
    """The tensors of a GGUF file, dequantized by the `gguf` package one at a time, as [rows][columns] in binary64."""

    def __init__(self, path: Path) -> None:
        self._tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}

    def __getitem__(self, name: str) -> Array:
        tensor = self._tensors[name]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)

    def rows(self, name: str, indices: NDArray[np.int32]) -> Array:
        """Some rows of a matrix: of an embedding, a text needs few."""
        tensor = self._tensors[name]
        return gguf.quants.dequantize(tensor.data[indices], tensor.tensor_type).astype(np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def hidden_states(
    plan: ModelPlan, weights: Weights, tokens: NDArray[np.int32], cache: type[np.floating] = np.float64
) -> Array:
    """What the output matrix multiplies: [positions, embedding_dim], after the last norm.

    Keys and values are rounded to the type `cache`.
    """
    x = weights.rows(plan.token_embedding, tokens) * plan.embedding_scale
    for layer in plan.layers:
        epsilon = plan.norm_epsilon
        y = attention(layer.attention, weights, rms_norm(x, weights[layer.attention_norm], epsilon), epsilon, cache)
        x = x + (y if layer.post_attention_norm is None else rms_norm(y, weights[layer.post_attention_norm], epsilon))
        y = feed_forward(layer.ffn, weights, rms_norm(x, weights[layer.ffn_norm], epsilon))
        x = x + (y if layer.post_ffn_norm is None else rms_norm(y, weights[layer.post_ffn_norm], epsilon))
    return rms_norm(x, weights[plan.output_norm], plan.norm_epsilon)


def logits(plan: ModelPlan, weights: Mapping[str, Array], hidden: Array) -> Iterator[Array]:
    """The logits of `hidden`, at most ROWS_AT_ONCE positions at a time: [rows, vocab]."""
    matrix = weights[plan.output.weight]
    bias = 0.0 if plan.output.bias is None else weights[plan.output.bias]
    for start in range(0, len(hidden), ROWS_AT_ONCE):
        yield hidden[start : start + ROWS_AT_ONCE] @ matrix.T + bias


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def linear(plan: LinearPlan, weights: Mapping[str, Array], x: Array) -> Array:
    y = x @ weights[plan.weight].T
    return y if plan.bias is None else y + weights[plan.bias]


def attention(
    plan: AttentionPlan, weights: Mapping[str, Array], x: Array, epsilon: float, cache: type[np.floating]
) -> Array:
    """Causal grouped-query attention over a whole sequence that starts at position 0."""
    count = len(x)
    query = linear(plan.query, weights, x).reshape(count, plan.head_count, plan.head_dim)
    key = linear(plan.key, weights, x).reshape(count, plan.kv_head_count, plan.head_dim)
    value = linear(plan.value, weights, x).reshape(count, plan.kv_head_count, plan.head_dim)
    if plan.query_norm is not None:
        query = rms_norm(query, weights[plan.query_norm], epsilon)
    if plan.key_norm is not None:
        key = rms_norm(key, weights[plan.key_norm], epsilon)
    query, key = rotate(plan.rope, weights, query), rotate(plan.rope, weights, key)
    key, value = key.astype(cache).astype(np.float64), value.astype(cache).astype(np.float64)

    output = np.empty_like(query)
    group = plan.head_count // plan.kv_head_count
    for start in range(0, count, QUERIES_AT_ONCE):
        end = min(start + QUERIES_AT_ONCE, count)
        begin = max(0, start - plan.window + 1) if plan.window else 0
        distance = np.arange(start, end)[:, None] - np.arange(begin, end)[None, :]
        unseen = distance < 0
        if plan.window:
            unseen |= distance >= plan.window
        for head in range(plan.head_count):
            scores = query[start:end, head] @ key[begin:end, head // group].T * plan.score_scale
            scores[unseen] = -np.inf
            scores -= scores.max(axis=1, keepdims=True)
            np.exp(scores, out=scores)
            values = scores @ value[begin:end, head // group]
            output[start:end, head] = values / scores.sum(axis=1, keepdims=True)
    return linear(plan.output, weights, output.reshape(count, -1))


def rotate(plan: RopePlan, weights: Mapping[str, Array], x: Array) -> Array:
    """Rotary position embedding of [positions, heads, head_dim]."""
    if plan.style == "none":
        return x
    half = plan.rotary_dim // 2
    frequency = plan.base ** (-2.0 * np.arange(half) / plan.rotary_dim)
    if plan.freq_factors is not None:
        frequency = frequency / weights[plan.freq_factors]
    angle = (np.arange(len(x)) * plan.position_scale)[:, None, None] * frequency
    first = slice(0, half) if plan.style == "half" else slice(0, plan.rotary_dim, 2)
    second = slice(half, plan.rotary_dim) if plan.style == "half" else slice(1, plan.rotary_dim, 2)
    y = x.copy()
    y[..., first] = x[..., first] * np.cos(angle) - x[..., second] * np.sin(angle)
    y[..., second] = x[..., second] * np.cos(angle) + x[..., first] * np.sin(angle)
    return y


def feed_forward(plan: FeedForwardPlan, weights: Mapping[str, Array], x: Array) -> Array:
    gate = linear(plan.gate, weights, x)
    if plan.activation == "silu":
        gate = gate / (1.0 + np.exp(-gate))
    else:
        gate = 0.5 * gate * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (gate + 0.044715 * gate**3)))
    return linear(plan.down, weights, gate * linear(plan.up, weights, x))
