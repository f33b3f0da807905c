"""benchmarks/make_model.py: its files are models, of the wanted shape and types, with weights of sane scale."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import gguf
import numpy as np
import pytest

from tokenmill.models import plan_model
from tokenmill.text.tokenizer import Tokenizer
from tokenmill.weights.formats import FILE_FORMATS
from tokenmill.weights.read_gguf import read_gguf


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "make_model.py"
    spec = importlib.util.spec_from_file_location("make_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_model"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("architecture", "weight_type"),
    [*(("llama", entry.name) for entry in FILE_FORMATS), ("qwen2", "Q4_K_M"), ("qwen2", "Q5_K_M"), ("qwen2", "Q4_0")],
)
def test_every_type(
    maker: ModuleType, default_model_path: Path, tmp_path: Path, architecture: str, weight_type: str
) -> None:
    shape = replace(maker.PRESETS["tiny"], architecture=architecture, vocab=1000, tied=False)
    path = tmp_path / "model.gguf"
    nbytes = maker.make_model(path, shape, weight_type, default_model_path, seed=1)
    assert path.stat().st_size == nbytes
    model = read_gguf(path)
    plan = plan_model(model)
    assert (plan.vocab_size, plan.embedding_dim, len(plan.layers)) == (1000, 256, 2)
    assert Tokenizer.from_metadata(model.metadata).vocab_size == 1000
    for tensor in gguf.GGUFReader(path).tensors:
        if len(tensor.shape) == 2:
            weights = gguf.dequantize(tensor.data, tensor.tensor_type)
            assert np.isfinite(weights).all()
            assert 0.9 < weights.std() * np.sqrt(weights.shape[1]) < 1.1, tensor.name
    used = {tensor.format for tensor in model.tensors.values()} - {"F32"}
    expected = {"Q4_K_M": {"Q4_K", "Q6_K"}, "Q5_K_M": {"Q5_K", "Q6_K"}, "F32": set()}.get(weight_type, {weight_type})
    if weight_type.startswith("Q4"):
        expected = expected | {"Q6_K"}  # the output
    assert used == expected


def test_same_seed_same_file(maker: ModuleType, default_model_path: Path, tmp_path: Path) -> None:
    shape = replace(maker.PRESETS["tiny"], vocab=500)
    contents = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        maker.make_model(tmp_path / name, shape, "Q4_0", default_model_path, seed)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_rows_that_a_block_does_not_divide_take_a_smaller_block(maker: ModuleType) -> None:
    formats = maker.tensor_formats(maker.PRESETS["0.5b"], "Q4_K_M")
    assert formats["blk.0.attn_q.weight"] == ((896, 896), "Q5_0")
    assert formats["blk.0.attn_v.weight"] == ((128, 896), "Q8_0")
    assert formats["blk.0.ffn_down.weight"] == ((896, 4864), "Q6_K")


def test_a_vocabulary_is_filled_up_and_never_loses_special_tokens(maker: ModuleType) -> None:
    source = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ("a", "b", "ab", "<end>"),
        "tokenizer.ggml.token_type": (1, 1, 1, 3),
        "tokenizer.ggml.merges": ("a b",),
        "general.name": "x",
    }
    filled = maker.fit_tokenizer(source, 6)
    assert filled["tokenizer.ggml.tokens"] == ("a", "b", "ab", "<end>", "<filler_0>", "<filler_1>")
    assert filled["tokenizer.ggml.token_type"] == (1, 1, 1, 3, 5, 5)
    assert "general.name" not in filled
    with pytest.raises(SystemExit, match="special"):
        maker.fit_tokenizer(source, 3)
