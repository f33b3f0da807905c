"""Loads the tensors that a plan names into a native model, which packs them for its kernel set."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tokenmill import _native
from tokenmill.vocabulary.errors import CapacityError, ModelFileError
from tokenmill.vocabulary.layer_plan import LayerPlan, LinearPlan, ModelPlan
from tokenmill.vocabulary.model_file import ModelFile, TensorInfo
from tokenmill.weights.progress import Progress

_DAMAGED = "the file is damaged or was cut short; download it again (tokenmill pull)"


def load_weights(model: _native.Model, model_file: ModelFile, plan: ModelPlan, progress: Progress) -> None:
    """Reads every tensor of the plan, in file order, and finishes the model's loading.

    Args:
        model: made for `plan`, still empty.
        model_file: where the tensors are.
        plan: names them.
        progress: told about each tensor's file bytes once they are packed.

    Raises:
        ModelFileError: a tensor is missing, has another shape than the plan needs, cannot be read, or holds NaN or
            infinite scales.
        CapacityError: no memory for the packed weights.
    """
    tensors = _tensors_in_file_order(model_file, plan)
    progress.stage("Loading weights", sum(tensor.nbytes for tensor in tensors))
    with contextlib.ExitStack() as opened:
        files: dict[Path, int] = {}
        for tensor in tensors:
            if tensor.path not in files:
                files[tensor.path] = _open(tensor.path)
                opened.callback(os.close, files[tensor.path])
            _load_tensor(model, tensor, files[tensor.path])
            progress.advance(tensor.nbytes)
    try:
        model.finish_loading()
    except ValueError as error:
        raise ModelFileError(str(error), where=str(model_file.path)) from error


def plan_tensor_names(plan: ModelPlan) -> Iterator[str]:
    """Names of the tensors that a plan uses; one that is used twice is given twice."""
    yield plan.token_embedding
    for layer in plan.layers:
        yield from _layer_tensor_names(layer)
    yield plan.output_norm
    yield from _linear_tensor_names(plan.output)


def _layer_tensor_names(layer: LayerPlan) -> Iterator[str]:
    attention, ffn = layer.attention, layer.ffn
    for linear in (attention.query, attention.key, attention.value, attention.output, ffn.gate, ffn.up, ffn.down):
        yield from _linear_tensor_names(linear)
    optional = (
        layer.attention_norm,
        attention.query_norm,
        attention.key_norm,
        attention.rope.freq_factors,
        layer.post_attention_norm,
        layer.ffn_norm,
        layer.post_ffn_norm,
    )
    yield from (name for name in optional if name is not None)


def _linear_tensor_names(linear: LinearPlan) -> Iterator[str]:
    yield linear.weight
    if linear.bias is not None:
        yield linear.bias


def _tensors_in_file_order(model_file: ModelFile, plan: ModelPlan) -> list[TensorInfo]:
    names = dict.fromkeys(plan_tensor_names(plan))
    missing = [name for name in names if name not in model_file.tensors]
    if missing:
        others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise ModelFileError(f"tensor {missing[0]} is missing{others}", where=str(model_file.path))
    return sorted((model_file.tensors[name] for name in names), key=lambda tensor: (str(tensor.path), tensor.offset))


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ModelFileError(f"cannot be opened: {error.strerror}", where=str(path)) from error


def _load_tensor(model: _native.Model, tensor: TensorInfo, fd: int) -> None:
    where = str(tensor.path)
    if len(tensor.shape) not in (1, 2):
        raise ModelFileError(f"tensor {tensor.name} has {len(tensor.shape)} dimensions", where=where)
    rows = 1 if len(tensor.shape) == 1 else tensor.shape[0]
    try:
        model.load_tensor(tensor.name, tensor.format, rows, tensor.shape[-1], fd, tensor.offset, tensor.nbytes)
    except (ValueError, RuntimeError) as error:
        raise ModelFileError(str(error), where=where, hint=_DAMAGED) from error
    except OSError as error:
        raise ModelFileError(error.strerror or str(error), where=where, hint=_DAMAGED) from error
    except MemoryError as error:
        raise CapacityError(
            f"no memory for tensor {tensor.name} of {tensor.nbytes:,} bytes",
            where=where,
            hint="use a smaller model or a smaller quantization, or give the container more memory",
        ) from error
