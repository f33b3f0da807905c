"""Logits of the native decoder for a ModelPlan, which need not be the one the file would give: tests inject faults."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenmill import _native
from tokenmill.vocabulary.layer_plan import ModelPlan
from tokenmill.vocabulary.model_file import ModelFile

PAGE_TOKENS = 16


def native_logits(
    plan: ModelPlan,
    model_file: ModelFile,
    tokens: NDArray[np.int32],
    *,
    rows_at_once: int,
    kernel_set: str | None = None,
    replaced: Mapping[str, bytes] | None = None,
) -> Iterator[NDArray[np.float32]]:
    """Runs one sequence in chunks and yields the logits after every position, [rows, vocab] a chunk.

    `replaced` holds file bytes to load in place of a tensor's own.
    """
    model = _native.Model(
        dataclasses.asdict(plan), kernel_set=_native.select_kernel_set(kernel_set), threads=2, cpus=None
    )
    _load(model, plan, model_file, replaced or {})
    page_count = -(-len(tokens) // PAGE_TOKENS)
    model.allocate_kv(page_count)
    pages = np.arange(page_count, dtype=np.int32)
    model.zero_pages(pages)
    for start in range(0, len(tokens), rows_at_once):
        chunk = tokens[start : start + rows_at_once]
        used = pages[: -(-(start + len(chunk)) // PAGE_TOKENS)]
        result = model.step(
            tokens=chunk,
            starts=np.array([0, len(chunk)], dtype=np.int32),
            positions=np.array([start], dtype=np.int32),
            page_table=used,
            page_starts=np.array([0, len(used)], dtype=np.int32),
            sample_rows=np.arange(len(chunk), dtype=np.int32),
            samplers=None,
            histories=[None] * len(chunk),
            return_logits=True,
        )
        assert not result.nonfinite.any()
        assert result.logits is not None
        yield result.logits


def planned_tensors(value: Any) -> set[str]:
    """Every string of a plan that could be a tensor's name."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        return set().union(*(planned_tensors(inner) for inner in value.values()))
    if isinstance(value, tuple):
        return set().union(*(planned_tensors(inner) for inner in value))
    return set()


def _load(model: Any, plan: ModelPlan, model_file: ModelFile, replaced: Mapping[str, bytes]) -> None:
    for name in planned_tensors(dataclasses.asdict(plan)) & model_file.tensors.keys():
        info = model_file.tensors[name]
        rows = info.shape[0] if len(info.shape) == 2 else 1
        with tempfile.TemporaryFile() if name in replaced else info.path.open("rb") as stream:
            offset = info.offset
            if name in replaced:
                stream.write(replaced[name])
                stream.flush()
                offset = 0
            model.load_tensor(name, info.format, rows, info.shape[-1], stream.fileno(), offset, info.nbytes)
    model.finish_loading()
