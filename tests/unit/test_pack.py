"""Loading a file's weights into a native model: order, progress, and errors that say where."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tiny_models import TinyModel, write_gguf
from tokenmill import _native
from tokenmill.engine.model_runner import open_model
from tokenmill.engine.placement import Placement
from tokenmill.models import plan_model
from tokenmill.vocabulary.errors import ModelFileError, UnsupportedModelError
from tokenmill.vocabulary.layer_plan import ModelPlan
from tokenmill.vocabulary.model_file import ModelFile
from tokenmill.weights.pack import load_weights, plan_tensor_names
from tokenmill.weights.read_gguf import read_gguf


class Recorder:
    def __init__(self) -> None:
        self.totals: list[int | None] = []
        self.done: list[int] = []

    def stage(self, label: str, total_bytes: int | None) -> None:
        assert label
        self.totals.append(total_bytes)

    def advance(self, nbytes: int) -> None:
        self.done.append(nbytes)


@pytest.fixture
def model_file(tmp_path: Path) -> ModelFile:
    return read_gguf(write_gguf(tmp_path / "tiny.gguf", TinyModel("qwen2", vocab=300)))


def opened(plan: ModelPlan) -> _native.Model:
    return open_model(plan, kernel_set=_native.select_kernel_set(None), placement=Placement(threads=2))


def spoil(model_file: ModelFile, name: str, offset: int, data: bytes) -> None:
    with model_file.path.open("r+b") as stream:
        stream.seek(model_file.tensors[name].offset + offset)
        stream.write(data)


def test_all_tensors_are_loaded_and_told(model_file: ModelFile) -> None:
    plan = plan_model(model_file)
    model, progress = opened(plan), Recorder()
    load_weights(model, model_file, plan, progress)
    used = [model_file.tensors[name] for name in set(plan_tensor_names(plan))]
    assert progress.totals == [sum(tensor.nbytes for tensor in used)]
    assert sum(progress.done) == progress.totals[0]
    assert len(progress.done) == len(used)
    assert 0 < model.weight_bytes <= 1.02 * model_file.file_bytes
    model.allocate_kv(1)


def test_a_scale_that_is_not_finite(model_file: ModelFile) -> None:
    spoil(model_file, "blk.1.ffn_down.weight", 5 * 102 + 34, b"\x00\xfc")
    plan = plan_model(model_file)
    with pytest.raises(ModelFileError, match=r"blk\.1\.ffn_down\.weight: row 5, block 1") as caught:
        load_weights(opened(plan), model_file, plan, Recorder())
    assert caught.value.where == str(model_file.path)
    assert caught.value.hint


def test_a_file_that_was_cut_short_after_it_was_read(model_file: ModelFile) -> None:
    plan = plan_model(model_file)
    model = opened(plan)
    last = max(model_file.tensors.values(), key=lambda tensor: tensor.offset)
    with model_file.path.open("r+b") as stream:
        stream.truncate(last.offset + 4)
    with pytest.raises(ModelFileError, match="ends early"):
        load_weights(model, model_file, plan, Recorder())


def test_a_file_that_is_gone(model_file: ModelFile) -> None:
    plan = plan_model(model_file)
    model_file.path.unlink()
    with pytest.raises(ModelFileError, match="cannot be opened"):
        load_weights(opened(plan), model_file, plan, Recorder())


def test_a_missing_tensor_is_named(model_file: ModelFile) -> None:
    plan = plan_model(model_file)
    kept = {name: tensor for name, tensor in model_file.tensors.items() if name != "blk.0.attn_k.bias"}
    with pytest.raises(ModelFileError, match=r"blk\.0\.attn_k\.bias is missing"):
        load_weights(opened(plan), dataclasses.replace(model_file, tensors=kept), plan, Recorder())


def test_a_plan_that_native_code_cannot_execute(model_file: ModelFile) -> None:
    plan = plan_model(model_file)
    layer = plan.layers[0]
    experts = dataclasses.replace(layer, ffn=dataclasses.replace(layer.ffn, expert_count=4))
    with pytest.raises(UnsupportedModelError, match="mixture-of-experts"):
        opened(dataclasses.replace(plan, layers=(experts, *plan.layers[1:])))
