"""Faults that the divergence test must see: a wrong plan, or weights whose scales are in the wrong order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from tokenmill.vocabulary.layer_plan import AttentionPlan, LayerPlan, LinearPlan, ModelPlan
from tokenmill.vocabulary.model_file import ModelFile, TensorInfo

FaultyInput = tuple[ModelPlan, Mapping[str, bytes]]


@dataclasses.dataclass(frozen=True)
class Fault:
    """Turns a model's plan and file into what a faulty engine would have run."""

    model: Literal["smollm", "qwen"]
    name: str
    apply: Callable[[ModelPlan, ModelFile], FaultyInput]


def replaced_attention(plan: ModelPlan, change: Callable[[AttentionPlan], AttentionPlan]) -> ModelPlan:
    layers = tuple(dataclasses.replace(layer, attention=change(layer.attention)) for layer in plan.layers)
    return dataclasses.replace(plan, layers=layers)


def replaced_window(plan: ModelPlan, window: int) -> ModelPlan:
    return replaced_attention(plan, lambda attention: dataclasses.replace(attention, window=window))


def wrong_rope_base(plan: ModelPlan) -> ModelPlan:
    """A tenth of the base, as when the key is missed and a default taken."""

    def change(attention: AttentionPlan) -> AttentionPlan:
        return dataclasses.replace(attention, rope=dataclasses.replace(attention.rope, base=attention.rope.base / 10))

    return replaced_attention(plan, change)


def wrong_rope_style(plan: ModelPlan) -> ModelPlan:
    """Rotates neighbours where halves are meant, or the reverse."""

    def change(attention: AttentionPlan) -> AttentionPlan:
        style = "half" if attention.rope.style == "interleaved" else "interleaved"
        return dataclasses.replace(attention, rope=dataclasses.replace(attention.rope, style=style))

    return replaced_attention(plan, change)


def without_biases(plan: ModelPlan) -> ModelPlan:
    """Q, K and V without their biases."""

    def bare(linear: LinearPlan) -> LinearPlan:
        return dataclasses.replace(linear, bias=None)

    def change(attention: AttentionPlan) -> AttentionPlan:
        return dataclasses.replace(
            attention, query=bare(attention.query), key=bare(attention.key), value=bare(attention.value)
        )

    return replaced_attention(plan, change)


def swapped_norms(plan: ModelPlan) -> ModelPlan:
    """The attention's norm before the feed-forward network, and the reverse."""

    def change(layer: LayerPlan) -> LayerPlan:
        return dataclasses.replace(layer, attention_norm=layer.ffn_norm, ffn_norm=layer.attention_norm)

    return dataclasses.replace(plan, layers=tuple(change(layer) for layer in plan.layers))


def _with_swapped_scales(info: TensorInfo, block_bytes: int, fields: slice, groups: int) -> bytes:
    """The tensor's bytes with the scales of neighbouring groups exchanged.

    `fields` are the bytes of a block that hold `groups` scales; with one scale a block, neighbouring blocks exchange.
    """
    with info.path.open("rb") as stream:
        stream.seek(info.offset)
        raw = np.frombuffer(stream.read(info.nbytes), dtype=np.uint8).reshape(info.shape[0], -1, block_bytes).copy()
    scales = raw[:, :, fields]
    pairs = scales.reshape(-1, 2, scales.shape[2] // groups) if groups > 1 else scales.reshape(-1, 2, scales.shape[2])
    raw[:, :, fields] = pairs[:, ::-1].reshape(scales.shape)
    return raw.tobytes()


def swapped_q4_1_scales(plan: ModelPlan, file: ModelFile) -> FaultyInput:
    """Neighbouring groups of Q4_1 exchange their scale and minimum, in every query and key matrix."""
    chosen = [info for name, info in file.tensors.items() if info.format == "Q4_1" and "attn_q" in name]
    assert chosen
    return plan, {info.name: _with_swapped_scales(info, 20, slice(0, 4), 1) for info in chosen}


def swapped_q6_k_scales(plan: ModelPlan, file: ModelFile) -> FaultyInput:
    """The two half groups of each group of Q6_K exchange their scales."""
    chosen = [info for info in file.tensors.values() if info.format == "Q6_K"]
    assert chosen
    return plan, {info.name: _with_swapped_scales(info, 210, slice(192, 208), 16) for info in chosen}


def _in_plan(change: Callable[[ModelPlan], ModelPlan]) -> Callable[[ModelPlan, ModelFile], FaultyInput]:
    return lambda plan, _file: (change(plan), {})


FAULTS = (
    Fault("smollm", "wrong_rope_base", _in_plan(wrong_rope_base)),
    Fault("smollm", "wrong_rope_style", _in_plan(wrong_rope_style)),
    Fault("smollm", "swapped_norms", _in_plan(swapped_norms)),
    Fault("smollm", "swapped_scales", swapped_q4_1_scales),
    Fault("qwen", "wrong_rope_base", _in_plan(wrong_rope_base)),
    Fault("qwen", "without_biases", _in_plan(without_biases)),
    Fault("qwen", "swapped_scales", swapped_q6_k_scales),
)
