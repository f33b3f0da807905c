"""A pre-norm decoder with grouped-query attention and a gated feed-forward network, as its metadata describes it.

Keys and tensor names are those of the GGUF specification (github.com/ggml-org/ggml, docs/gguf.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenmill.models.shared.metadata import (
    MAX_CONTEXT,
    MAX_DIM,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_VOCABULARY,
    Metadata,
)
from tokenmill.models.shared.rope import plan_rope
from tokenmill.models.shared.tensors import Tensors
from tokenmill.vocabulary.layer_plan import (
    AttentionPlan,
    FeedForwardPlan,
    LayerPlan,
    LinearPlan,
    ModelPlan,
    RopePlan,
    RopeStyle,
)
from tokenmill.vocabulary.model_file import ModelFile

# Limits of the attention kernels (native/contract/kernel_set.h).
_MAX_HEAD_DIM = 256
_HEAD_DIM_MULTIPLE = 8


@dataclass(frozen=True, slots=True)
class DenseTraits:
    """How one model type differs from the others; everything else is read from the file."""

    rope_style: RopeStyle
    head_norms: bool = False  # an RMS norm over each query and key head, before RoPE
    sliding_window: bool = False  # attention.sliding_window, when present, holds for every layer


@dataclass(frozen=True, slots=True)
class _Sizes:
    layers: int
    embedding: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    score_scale: float
    window: int


def plan_dense(model_file: ModelFile, metadata: Metadata, traits: DenseTraits) -> ModelPlan:
    """The whole plan of a dense decoder. Errors are those of `plan_model`."""
    _refuse_other_computations(metadata)
    sizes = _read_sizes(metadata, traits)
    tensors = Tensors(model_file, metadata)
    vocab_size = _vocab_size(metadata, tensors)
    embedding = tensors.matrix("token_embd.weight", vocab_size, sizes.embedding)
    rope = plan_rope(metadata, tensors, style=traits.rope_style, head_dim=sizes.head_dim)
    plan = ModelPlan(
        architecture=metadata.architecture,
        vocab_size=vocab_size,
        embedding_dim=sizes.embedding,
        context_length=sizes.context,
        norm_epsilon=metadata.real("attention.layer_norm_rms_epsilon", minimum=1e-30, maximum=1.0),
        token_embedding=embedding,
        output_norm=tensors.vector("output_norm.weight", sizes.embedding),
        output=(
            tensors.linear("output", vocab_size, sizes.embedding)
            if "output.weight" in tensors
            else LinearPlan(embedding, tensors.optional_vector("output.bias", vocab_size))
        ),
        layers=tuple(_plan_layer(i, sizes, tensors, rope, traits.head_norms) for i in range(sizes.layers)),
    )
    tensors.refuse_leftovers()
    return plan


def _refuse_other_computations(metadata: Metadata) -> None:
    experts = metadata.integer("expert_count", minimum=0, maximum=MAX_DIM, default=0)
    if experts:
        raise metadata.unsupported(
            f"{metadata.key('expert_count')} = {experts}: mixture-of-experts models are not supported",
            hint="Supported: one dense feed-forward network per layer.",
        )
    metadata.require_neutral("attention.causal", True)
    metadata.require_neutral("pooling_type", 0)
    metadata.require_neutral("use_parallel_residual", False)
    for suffix in (
        "attention.clamp_kqv",
        "attention.max_alibi_bias",
        "attn_logit_softcapping",
        "final_logit_softcapping",
    ):
        metadata.require_neutral(suffix, 0.0)
    for suffix in ("embedding_scale", "logit_scale", "residual_scale"):
        metadata.require_neutral(suffix, 0.0, 1.0)
    metadata.require_neutral("attention.sliding_window_pattern")


def _read_sizes(metadata: Metadata, traits: DenseTraits) -> _Sizes:
    layers = metadata.integer("block_count", minimum=1, maximum=MAX_LAYERS)
    embedding = metadata.integer("embedding_length", minimum=1, maximum=MAX_DIM)
    heads = metadata.uniform_integer("attention.head_count", layers=layers, minimum=1, maximum=MAX_HEADS)
    kv_heads = metadata.uniform_integer(
        "attention.head_count_kv", layers=layers, minimum=1, maximum=MAX_HEADS, default=heads
    )
    if heads % kv_heads:
        raise metadata.damaged(
            f"{metadata.key('attention.head_count')} = {heads} is not a multiple of "
            f"{metadata.key('attention.head_count_kv')} = {kv_heads}"
        )
    if metadata.raw("attention.key_length") is None and embedding % heads:
        raise metadata.damaged(
            f"{metadata.key('embedding_length')} = {embedding} is not a multiple of "
            f"{metadata.key('attention.head_count')} = {heads}, and {metadata.key('attention.key_length')} is missing"
        )
    head_dim = metadata.integer("attention.key_length", minimum=1, maximum=MAX_DIM, default=embedding // heads)
    value_dim = metadata.integer("attention.value_length", minimum=1, maximum=MAX_DIM, default=head_dim)
    if value_dim != head_dim:
        raise metadata.unsupported(
            f"{metadata.key('attention.value_length')} = {value_dim} differs from the key length {head_dim}",
            hint="Supported: keys and values of the same length.",
        )
    if head_dim > _MAX_HEAD_DIM or head_dim % _HEAD_DIM_MULTIPLE:
        raise metadata.unsupported(
            f"attention heads of {head_dim} elements are not supported",
            hint=f"Supported: multiples of {_HEAD_DIM_MULTIPLE} up to {_MAX_HEAD_DIM}.",
        )
    context = metadata.integer("context_length", minimum=2, maximum=MAX_CONTEXT)
    return _Sizes(
        layers=layers,
        embedding=embedding,
        hidden=metadata.uniform_integer("feed_forward_length", layers=layers, minimum=1, maximum=MAX_DIM),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        context=context,
        score_scale=metadata.real("attention.scale", minimum=0.0, maximum=1e6, default=0.0)
        or 1.0 / math.sqrt(head_dim),
        window=_window(metadata, traits, context),
    )


def _vocab_size(metadata: Metadata, tensors: Tensors) -> int:
    """Rows of the embedding, which the tokenizer and the optional key have to agree with."""
    rows = tensors.rows("token_embd.weight")
    if not 1 <= rows <= MAX_VOCABULARY:
        raise metadata.damaged(f"the tensor token_embd.weight has {rows} rows, outside 1..{MAX_VOCABULARY}")
    declared = metadata.integer("vocab_size", minimum=1, maximum=MAX_VOCABULARY, default=rows)
    tokens = metadata.token_count()
    for source, count in ((metadata.key("vocab_size"), declared), ("tokenizer.ggml.tokens", tokens)):
        if count is not None and count != rows:
            raise metadata.damaged(f"token_embd.weight has {rows} rows, but {source} says {count} tokens")
    return rows


def _plan_layer(index: int, sizes: _Sizes, tensors: Tensors, rope: RopePlan, head_norms: bool) -> LayerPlan:
    stem = f"blk.{index}"
    width = sizes.heads * sizes.head_dim
    kv_width = sizes.kv_heads * sizes.head_dim
    attention = AttentionPlan(
        head_count=sizes.heads,
        kv_head_count=sizes.kv_heads,
        head_dim=sizes.head_dim,
        score_scale=sizes.score_scale,
        query=tensors.linear(f"{stem}.attn_q", width, sizes.embedding),
        key=tensors.linear(f"{stem}.attn_k", kv_width, sizes.embedding),
        value=tensors.linear(f"{stem}.attn_v", kv_width, sizes.embedding),
        output=tensors.linear(f"{stem}.attn_output", sizes.embedding, width),
        rope=rope,
        window=sizes.window,
        query_norm=tensors.vector(f"{stem}.attn_q_norm.weight", sizes.head_dim) if head_norms else None,
        key_norm=tensors.vector(f"{stem}.attn_k_norm.weight", sizes.head_dim) if head_norms else None,
    )
    ffn = FeedForwardPlan(
        hidden=sizes.hidden,
        activation="silu",
        gate=tensors.linear(f"{stem}.ffn_gate", sizes.hidden, sizes.embedding),
        up=tensors.linear(f"{stem}.ffn_up", sizes.hidden, sizes.embedding),
        down=tensors.linear(f"{stem}.ffn_down", sizes.embedding, sizes.hidden),
    )
    return LayerPlan(
        attention_norm=tensors.vector(f"{stem}.attn_norm.weight", sizes.embedding),
        attention=attention,
        ffn_norm=tensors.vector(f"{stem}.ffn_norm.weight", sizes.embedding),
        ffn=ffn,
    )


def _window(metadata: Metadata, traits: DenseTraits, context: int) -> int:
    """The number of keys a query sees, its own included; 0 for all of them."""
    window = metadata.integer("attention.sliding_window", minimum=0, maximum=MAX_CONTEXT, default=0)
    if window == 0 or window >= context:
        return 0
    if not traits.sliding_window:
        raise metadata.unsupported(
            f"{metadata.key('attention.sliding_window')} = {window} is not supported",
            hint=f"Supported for {metadata.architecture}: full attention in every layer.",
        )
    return window
