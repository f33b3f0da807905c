"""Tiny random models of every type, against the logits that `transformers` gave for the same weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from numerics import float64_reference as reference
from numerics.native_model import native_logits
from tokenmill import _native
from tokenmill.models import plan_model
from tokenmill.vocabulary.layer_plan import AttentionPlan, LayerPlan, ModelPlan
from tokenmill.weights.read_gguf import read_gguf

GOLDENS = Path(__file__).parents[1] / "golden" / "models"
NAMES = sorted(path.stem for path in GOLDENS.glob("*.gguf"))
ROWS_AT_ONCE = 32  # fewer than the goldens' tokens, so that later chunks read the cache
USABLE_SETS = [entry["name"] for entry in _native.kernel_sets() if entry["usable"]]

# Errors are relative to the largest logit. transformers takes the rotation's angles in binary32: 2e-6.
REFERENCE_TOLERANCE = 1e-5
# Against the reference with its keys and values in fp16, too: binary32 sums, and now and then a key that falls on the
# other side of fp16's rounding.
NATIVE_TOLERANCE = 1e-4
# Against transformers: fp16 keys and values (2^-11 each), which these random weights magnify.
CACHE_TOLERANCE = 5e-3


def golden(name: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    with np.load(GOLDENS / f"{name}.npz") as arrays:
        return arrays["tokens"], arrays["logits"]


def relative_error(actual: NDArray[np.floating], expected: NDArray[np.floating]) -> float:
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def run_reference(name: str, cache: type[np.floating] = np.float64) -> NDArray[np.float64]:
    path = GOLDENS / f"{name}.gguf"
    plan, weights = plan_model(read_gguf(path)), reference.Weights(path)
    hidden = reference.hidden_states(plan, weights, golden(name)[0], cache)
    return np.concatenate(list(reference.logits(plan, weights, hidden)))


def run_native(name: str, plan: ModelPlan, kernel_set: str | None = None) -> NDArray[np.float32]:
    model_file = read_gguf(GOLDENS / f"{name}.gguf")
    return np.concatenate(
        list(native_logits(plan, model_file, golden(name)[0], rows_at_once=ROWS_AT_ONCE, kernel_set=kernel_set))
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_equals_transformers(name: str) -> None:
    assert relative_error(run_reference(name), golden(name)[1]) < REFERENCE_TOLERANCE


@pytest.mark.parametrize("kernel_set", USABLE_SETS)
@pytest.mark.parametrize("name", NAMES)
def test_the_engine_equals_transformers(name: str, kernel_set: str) -> None:
    actual = run_native(name, plan_model(read_gguf(GOLDENS / f"{name}.gguf")), kernel_set)
    assert relative_error(actual, run_reference(name, np.float16)) < NATIVE_TOLERANCE
    assert relative_error(actual, golden(name)[1]) < CACHE_TOLERANCE


def with_attention(plan: ModelPlan, change: Callable[[AttentionPlan], AttentionPlan]) -> ModelPlan:
    layers = tuple(dataclasses.replace(layer, attention=change(layer.attention)) for layer in plan.layers)
    return dataclasses.replace(plan, layers=layers)


def wrong_rope_base(plan: ModelPlan) -> ModelPlan:
    def change(attention: AttentionPlan) -> AttentionPlan:
        return dataclasses.replace(attention, rope=dataclasses.replace(attention.rope, base=attention.rope.base * 1.5))

    return with_attention(plan, change)


def wrong_rope_style(plan: ModelPlan) -> ModelPlan:
    def change(attention: AttentionPlan) -> AttentionPlan:
        style = "half" if attention.rope.style == "interleaved" else "interleaved"
        return dataclasses.replace(attention, rope=dataclasses.replace(attention.rope, style=style))

    return with_attention(plan, change)


def no_frequency_factors(plan: ModelPlan) -> ModelPlan:
    def change(attention: AttentionPlan) -> AttentionPlan:
        return dataclasses.replace(attention, rope=dataclasses.replace(attention.rope, freq_factors=None))

    return with_attention(plan, change)


def no_position_scale(plan: ModelPlan) -> ModelPlan:
    def change(attention: AttentionPlan) -> AttentionPlan:
        return dataclasses.replace(attention, rope=dataclasses.replace(attention.rope, position_scale=1.0))

    return with_attention(plan, change)


def no_query_bias(plan: ModelPlan) -> ModelPlan:
    def change(attention: AttentionPlan) -> AttentionPlan:
        return dataclasses.replace(attention, query=dataclasses.replace(attention.query, bias=None))

    return with_attention(plan, change)


def no_value_bias(plan: ModelPlan) -> ModelPlan:
    def change(attention: AttentionPlan) -> AttentionPlan:
        return dataclasses.replace(attention, value=dataclasses.replace(attention.value, bias=None))

    return with_attention(plan, change)


def no_key_norm(plan: ModelPlan) -> ModelPlan:
    return with_attention(plan, lambda attention: dataclasses.replace(attention, key_norm=None))


def window_too_wide(plan: ModelPlan) -> ModelPlan:
    return with_attention(plan, lambda attention: dataclasses.replace(attention, window=attention.window + 1))


def window_too_narrow(plan: ModelPlan) -> ModelPlan:
    return with_attention(plan, lambda attention: dataclasses.replace(attention, window=attention.window - 1))


def norms_swapped(plan: ModelPlan) -> ModelPlan:
    def change(layer: LayerPlan) -> LayerPlan:
        return dataclasses.replace(layer, attention_norm=layer.ffn_norm, ffn_norm=layer.attention_norm)

    return dataclasses.replace(plan, layers=tuple(change(layer) for layer in plan.layers))


def wrong_epsilon(plan: ModelPlan) -> ModelPlan:
    return dataclasses.replace(plan, norm_epsilon=1e-2)


@pytest.mark.parametrize(
    ("name", "fault"),
    [(name, fault) for name in NAMES for fault in (wrong_rope_base, wrong_rope_style, norms_swapped, wrong_epsilon)]
    + [
        ("llama3", no_frequency_factors),
        ("llama_linear", no_position_scale),
        ("llama_linear", no_query_bias),
        ("mistral", window_too_wide),
        ("mistral", window_too_narrow),
        ("qwen2", no_query_bias),
        ("qwen2", no_value_bias),
        ("qwen3", no_key_norm),
    ],
)
def test_a_fault_is_seen(name: str, fault: Callable[[ModelPlan], ModelPlan]) -> None:
    plan = plan_model(read_gguf(GOLDENS / f"{name}.gguf"))
    assert fault(plan) != plan
    assert relative_error(run_native(name, fault(plan)), golden(name)[1]) > 2 * CACHE_TOLERANCE
