"""Plans from metadata and tensors: what is read, and that everything else is refused by name."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from tokenmill.models import plan_model, supported_architectures
from tokenmill.vocabulary.errors import ModelFileError, UnsupportedModelError
from tokenmill.vocabulary.model_file import MetadataValue, ModelFile, TensorInfo

PATH = Path("model.gguf")
EMBEDDING, HEADS, KV_HEADS, HIDDEN, VOCAB, LAYERS = 64, 4, 2, 96, 50, 2


def tensor(name: str, *shape: int, format_name: str | None = None) -> TensorInfo:
    chosen = format_name or ("Q8_0" if len(shape) == 2 else "F32")
    return TensorInfo(name=name, format=chosen, shape=shape, path=PATH, offset=0, nbytes=0)


def model(architecture: str = "llama", head_dim: int = 16) -> ModelFile:
    metadata: dict[str, MetadataValue] = {
        "general.architecture": architecture,
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.context_length": 2048,
        f"{architecture}.embedding_length": EMBEDDING,
        f"{architecture}.feed_forward_length": HIDDEN,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
    }
    if head_dim * HEADS != EMBEDDING:
        metadata[f"{architecture}.attention.key_length"] = head_dim
    tensors = [tensor("token_embd.weight", VOCAB, EMBEDDING), tensor("output_norm.weight", EMBEDDING)]
    for i in range(LAYERS):
        tensors += [
            tensor(f"blk.{i}.attn_norm.weight", EMBEDDING),
            tensor(f"blk.{i}.attn_q.weight", HEADS * head_dim, EMBEDDING),
            tensor(f"blk.{i}.attn_k.weight", KV_HEADS * head_dim, EMBEDDING),
            tensor(f"blk.{i}.attn_v.weight", KV_HEADS * head_dim, EMBEDDING),
            tensor(f"blk.{i}.attn_output.weight", EMBEDDING, HEADS * head_dim),
            tensor(f"blk.{i}.ffn_norm.weight", EMBEDDING),
            tensor(f"blk.{i}.ffn_gate.weight", HIDDEN, EMBEDDING),
            tensor(f"blk.{i}.ffn_up.weight", HIDDEN, EMBEDDING),
            tensor(f"blk.{i}.ffn_down.weight", EMBEDDING, HIDDEN),
        ]
        if architecture == "qwen2":
            tensors += [
                tensor(f"blk.{i}.attn_q.bias", HEADS * head_dim),
                tensor(f"blk.{i}.attn_k.bias", KV_HEADS * head_dim),
                tensor(f"blk.{i}.attn_v.bias", KV_HEADS * head_dim),
            ]
        if architecture == "qwen3":
            tensors += [
                tensor(f"blk.{i}.attn_q_norm.weight", head_dim),
                tensor(f"blk.{i}.attn_k_norm.weight", head_dim),
            ]
    return ModelFile(path=PATH, metadata=metadata, tensors={t.name: t for t in tensors}, file_bytes=0)


def changed(
    base: ModelFile,
    metadata: dict[str, MetadataValue | None] | None = None,
    tensors: tuple[TensorInfo, ...] = (),
    without: tuple[str, ...] = (),
) -> ModelFile:
    values = dict(base.metadata)
    for key, value in (metadata or {}).items():
        values.pop(key, None)
        if value is not None:
            values[key] = value
    kept = {name: info for name, info in base.tensors.items() if name not in without}
    return dataclasses.replace(base, metadata=values, tensors=kept | {t.name: t for t in tensors})


def test_architectures_are_found_by_their_files() -> None:
    assert supported_architectures() == ("llama", "qwen2", "qwen3")


@pytest.mark.parametrize("architecture", supported_architectures())
def test_every_file_plans_a_model(architecture: str) -> None:
    plan = plan_model(model(architecture))
    assert plan.architecture == architecture
    assert (plan.vocab_size, plan.embedding_dim, plan.context_length) == (VOCAB, EMBEDDING, 2048)
    assert len(plan.layers) == LAYERS
    assert plan.output.weight == plan.token_embedding  # tied
    attention = plan.layers[1].attention
    assert attention.query.weight == "blk.1.attn_q.weight"
    assert (attention.query.bias is not None) == (architecture == "qwen2")
    assert (attention.key_norm is not None) == (architecture == "qwen3")
    assert attention.rope.style == ("interleaved" if architecture == "llama" else "half")
    assert (attention.rope.rotary_dim, attention.rope.base, attention.rope.position_scale) == (16, 10000.0, 1.0)
    assert attention.score_scale == 0.25
    assert attention.window == 0


def test_separate_output_and_biases() -> None:
    untied = changed(
        model(), tensors=(tensor("output.weight", VOCAB, EMBEDDING), tensor("blk.0.attn_output.bias", EMBEDDING))
    )
    plan = plan_model(untied)
    assert plan.output.weight == "output.weight"
    assert plan.layers[0].attention.output.bias == "blk.0.attn_output.bias"
    assert plan.layers[1].attention.output.bias is None


def test_head_dim_from_key_length() -> None:
    attention = plan_model(model("qwen3", head_dim=24)).layers[0].attention
    assert attention.head_dim == 24
    assert attention.score_scale == pytest.approx(1 / math.sqrt(24))


def test_partial_rotary() -> None:
    plan = plan_model(changed(model(), {"llama.rope.dimension_count": 8}))
    assert plan.layers[0].attention.rope.rotary_dim == 8


@pytest.mark.parametrize(
    ("metadata", "scale"),
    [
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, 0.25),
        ({"llama.rope.scaling.factor": 2.0}, 0.5),
        ({"llama.rope.scale_linear": 8.0}, 0.125),
        ({"llama.rope.scaling.factor": 0.0}, 1.0),
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}, 1.0),
    ],
)
def test_linear_rope_scaling(metadata: dict[str, MetadataValue | None], scale: float) -> None:
    assert plan_model(changed(model(), metadata)).layers[0].attention.rope.position_scale == scale


def test_llama3_frequency_factors() -> None:
    file = changed(model(), {"llama.rope.scaling.type": "llama3"}, tensors=(tensor("rope_freqs.weight", 8),))
    rope = plan_model(file).layers[1].attention.rope
    assert (rope.freq_factors, rope.position_scale) == ("rope_freqs.weight", 1.0)


def test_mistral_window() -> None:
    assert plan_model(changed(model(), {"llama.attention.sliding_window": 128})).layers[0].attention.window == 128
    assert plan_model(changed(model(), {"llama.attention.sliding_window": 4096})).layers[0].attention.window == 0


def test_attention_scale() -> None:
    assert plan_model(changed(model(), {"llama.attention.scale": 0.5})).layers[0].attention.score_scale == 0.5


def test_equal_values_per_layer() -> None:
    file = changed(model(), {"llama.attention.head_count_kv": (KV_HEADS,) * LAYERS})
    assert plan_model(file).layers[0].attention.kv_head_count == KV_HEADS


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", None),
        ("block_count", 0),
        ("block_count", 3),
        ("block_count", 1 << 40),
        ("block_count", -1),
        ("block_count", 2.0),
        ("block_count", "2"),
        ("block_count", True),
        ("context_length", None),
        ("context_length", 0),
        ("embedding_length", None),
        ("embedding_length", 128),
        ("embedding_length", 1 << 31),
        ("feed_forward_length", 95),
        ("feed_forward_length", (96,)),
        ("attention.head_count", 0),
        ("attention.head_count", None),
        ("attention.head_count", 3),
        ("attention.head_count", (4.0, 4.0)),
        ("attention.head_count_kv", 3),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 8),
        ("attention.layer_norm_rms_epsilon", None),
        ("attention.layer_norm_rms_epsilon", 0.0),
        ("attention.layer_norm_rms_epsilon", -1.0),
        ("attention.layer_norm_rms_epsilon", math.nan),
        ("attention.layer_norm_rms_epsilon", math.inf),
        ("attention.layer_norm_rms_epsilon", "small"),
        ("attention.sliding_window", -5),
        ("attention.scale", -1.0),
        ("rope.dimension_count", 7),
        ("rope.dimension_count", 0),
        ("rope.dimension_count", 32),
        ("rope.freq_base", 0.0),
        ("rope.freq_base", math.nan),
        ("rope.scaling.factor", -2.0),
        ("rope.scaling.factor", 1e-9),
        ("rope.scaling.factor", math.inf),
        ("rope.scaling.type", 4),
        ("expert_count", -1),
        ("vocab_size", 49),
    ],
)
def test_a_bad_value_is_a_damaged_file(key: str, value: MetadataValue | None) -> None:
    with pytest.raises(ModelFileError) as caught:
        plan_model(changed(model(), {f"llama.{key}": value}))
    assert caught.value.where == str(PATH)
    assert f"llama.{key}" in caught.value.what or "the tensor " in caught.value.what


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"llama.expert_count": 8}, "llama.expert_count = 8"),
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}, "'yarn'"),
        ({"llama.rope.scaling.type": "longrope"}, "'longrope'"),
        ({"llama.rope.scaling.type": "llama3"}, "'llama3'"),
        ({"llama.rope.scaling.attn_factor": 1.2}, "llama.rope.scaling.attn_factor"),
        ({"llama.rope.dimension_sections": (1, 2, 3)}, "llama.rope.dimension_sections"),
        ({"llama.attention.value_length": 8}, "llama.attention.value_length = 8"),
        ({"llama.attention.causal": False}, "llama.attention.causal"),
        ({"llama.attention.max_alibi_bias": 8.0}, "llama.attention.max_alibi_bias"),
        ({"llama.final_logit_softcapping": 30.0}, "llama.final_logit_softcapping"),
        ({"llama.attention.sliding_window_pattern": 2}, "llama.attention.sliding_window_pattern"),
        ({"llama.attention.head_count_kv": (2, 4)}, "llama.attention.head_count_kv"),
    ],
)
def test_what_is_not_built_is_named(metadata: dict[str, MetadataValue | None], named: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        plan_model(changed(model(), metadata))
    assert named in caught.value.what
    assert "Supported" in caught.value.hint


@pytest.mark.parametrize("head_dim", [12, 264])
def test_head_dims_that_kernels_cannot_do(head_dim: int) -> None:
    with pytest.raises(UnsupportedModelError, match=str(head_dim)):
        plan_model(model(head_dim=head_dim))


def test_qwen_windows_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="sliding_window"):
        plan_model(changed(model("qwen2"), {"qwen2.attention.sliding_window": 128}))


@pytest.mark.parametrize(
    "name", ["token_embd.weight", "output_norm.weight", "blk.1.attn_k.weight", "blk.0.ffn_down.weight"]
)
def test_a_missing_tensor_is_named(name: str) -> None:
    with pytest.raises(ModelFileError, match=f"tensor {name} is missing"):
        plan_model(changed(model(), without=(name,)))


@pytest.mark.parametrize(
    "bad",
    [
        tensor("blk.0.attn_q.weight", HEADS * 16, EMBEDDING + 32),
        tensor("blk.0.attn_k.weight", HEADS * 16, EMBEDDING),
        tensor("blk.0.attn_norm.weight", EMBEDDING, 1),
        tensor("blk.0.attn_q.bias", EMBEDDING - 1),
        tensor("token_embd.weight", VOCAB),
        tensor("token_embd.weight", VOCAB, EMBEDDING, 1),
        tensor("rope_freqs.weight", 16),
    ],
)
def test_a_wrong_shape_is_named(bad: TensorInfo) -> None:
    with pytest.raises(ModelFileError) as caught:
        plan_model(changed(model(), tensors=(bad,)))
    assert bad.name in caught.value.what


@pytest.mark.parametrize(
    "name", ["blk.0.attn_qkv.weight", "blk.0.ffn_gate_exps.weight", "blk.2.attn_q.weight", "blk.1.attn_q_norm.weight"]
)
def test_leftover_tensors_are_unsupported(name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=name):
        plan_model(changed(model(), tensors=(tensor(name, EMBEDDING, EMBEDDING),)))


def test_quantized_norms_are_unsupported() -> None:
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.attn_norm\.weight has the format Q8_0"):
        plan_model(changed(model(), tensors=(tensor("blk.0.attn_norm.weight", EMBEDDING, format_name="Q8_0"),)))


def test_tokens_that_disagree_with_the_embedding() -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer\.ggml\.tokens says 51"):
        plan_model(changed(model(), {"tokenizer.ggml.tokens": tuple(str(i) for i in range(VOCAB + 1))}))


@pytest.mark.parametrize("architecture", ["gemma3", "shared", "__init__", "../llama", "llama.plan", "Llama", ""])
def test_unknown_architectures_say_what_is_supported(architecture: str) -> None:
    with pytest.raises((UnsupportedModelError, ModelFileError)) as caught:
        plan_model(changed(model(), {"general.architecture": architecture}))
    if architecture:
        assert caught.value.hint == "Supported model types: llama, qwen2, qwen3."


@pytest.mark.parametrize("architecture", [None, 3, ("llama",)])
def test_a_file_without_an_architecture(architecture: MetadataValue | None) -> None:
    with pytest.raises(ModelFileError, match=r"general\.architecture"):
        plan_model(changed(model(), {"general.architecture": architecture}))
