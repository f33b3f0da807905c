"""What a step of a model has to do at least: bytes of weights, keys and values, and multiply-adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tokenmill.engine.bench.roofline import Work
from tokenmill.vocabulary.bench_report import ModelFacts
from tokenmill.vocabulary.layer_plan import LayerPlan, LinearPlan, ModelPlan
from tokenmill.vocabulary.model_file import ModelFile, TensorInfo

_FLOAT_FORMATS = ("F32", "F16", "BF16")
_FP16_BYTES = 2


@dataclass(frozen=True, slots=True)
class Chunk:
    """One sequence's part of a step: `tokens` of it after `position` earlier ones; `drawn` tokens are sampled."""

    tokens: int
    position: int
    drawn: int = 1


def step_work(model_file: ModelFile, plan: ModelPlan, chunks: Sequence[Chunk]) -> Work:
    """Every matrix is read once; every sequence's keys and values are read once.

    Integer formats count as "int8", float formats and attention as "fp32". Look-ups of embeddings, norms and
    activations are left out: they are small, and leaving them out makes the bound lower, never too high.
    """
    rows = sum(chunk.tokens for chunk in chunks)
    nbytes = 0.0
    multiply_adds = {"int8": 0.0, "fp32": 0.0}
    for linear, is_output in _linears(plan):
        tensor = model_file.tensors[linear.weight]
        count = sum(chunk.drawn for chunk in chunks) if is_output else rows
        if count:
            nbytes += tensor.nbytes
            multiply_adds[_kind(tensor)] += float(count) * tensor.shape[0] * tensor.shape[-1]
    for layer in plan.layers:
        attention = layer.attention
        for chunk in chunks:
            seen = [_visible(chunk.position + index + 1, attention.window) for index in range(chunk.tokens)]
            multiply_adds["fp32"] += 2.0 * attention.head_count * attention.head_dim * sum(seen)
            keys = min(chunk.position + chunk.tokens, seen[-1] + chunk.tokens - 1)
            nbytes += 2.0 * _FP16_BYTES * attention.kv_head_count * attention.head_dim * keys
    return Work(nbytes, multiply_adds)


def sum_of(works: Sequence[Work]) -> Work:
    """Work of several steps, one after another."""
    kinds = {kind for work in works for kind in work.multiply_adds}
    return Work(
        sum(work.nbytes for work in works),
        {kind: sum(work.multiply_adds.get(kind, 0.0) for work in works) for kind in sorted(kinds)},
    )


def model_facts(name: str, model_file: ModelFile, plan: ModelPlan, weight_bytes: int) -> ModelFacts:
    """The model as a report names it; `weight_bytes` are those in memory."""
    formats: dict[str, int] = {}
    for tensor in model_file.tensors.values():
        formats[tensor.format] = formats.get(tensor.format, 0) + tensor.nbytes
    return ModelFacts(
        name=name,
        architecture=plan.architecture,
        weight_bytes=weight_bytes,
        layers=len(plan.layers),
        parameters=sum(_elements(tensor) for tensor in model_file.tensors.values()),
        formats=_largest_first(formats),
    )


def _visible(keys: int, window: int) -> int:
    return min(keys, window) if window else keys


def _linears(plan: ModelPlan) -> Iterator[tuple[LinearPlan, bool]]:
    for layer in plan.layers:
        for linear in _layer_linears(layer):
            yield linear, False
    yield plan.output, True


def _layer_linears(layer: LayerPlan) -> Iterator[LinearPlan]:
    attention, ffn = layer.attention, layer.ffn
    yield from (attention.query, attention.key, attention.value, attention.output, ffn.gate, ffn.up, ffn.down)


def _kind(tensor: TensorInfo) -> str:
    return "fp32" if tensor.format in _FLOAT_FORMATS else "int8"


def _elements(tensor: TensorInfo) -> int:
    count = 1
    for size in tensor.shape:
        count *= size
    return count


def _largest_first(sizes: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))
