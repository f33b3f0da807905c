"""Tiny random models of any weight format, as data, as native models' input and as GGUF files.

Weights are full-entropy random blocks with sane scales, so every bit of a format's decoding matters. `tiny_plan`
and `tiny_tensors` also cover what no GGUF of a supported model type says (windows, post norms, GELU).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

from tokenmill.vocabulary.layer_plan import (
    Activation,
    AttentionPlan,
    FeedForwardPlan,
    LayerPlan,
    LinearPlan,
    ModelPlan,
    RopePlan,
    RopeStyle,
)

# name: (elements per block, bytes per block), as in the GGUF specification
BLOCKS: dict[str, tuple[int, int]] = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "IQ4_NL": (32, 18),
}
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class TinyModel:
    """Shape of a tiny model. `formats` maps a tensor's role (its name without `blk.N.` and `.weight`) to a format."""

    architecture: Literal["llama", "qwen2", "qwen3"] = "llama"
    layers: int = 2
    embedding: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    hidden: int = 96
    vocab: int = 288
    context: int = 2048
    default_format: str = "Q8_0"
    formats: Mapping[str, str] = field(default_factory=dict)
    tied: bool = True
    rope_base: float = 10000.0
    rotary_dim: int | None = None
    freq_factors: bool = False
    windows: tuple[int, ...] = (0,)  # layer i has windows[i % len]
    post_norms: bool = False
    activation: Activation = "silu"
    embedding_scale: float = 1.0
    seed: int = 1

    @property
    def attention_bias(self) -> bool:
        return self.architecture == "qwen2"

    @property
    def head_norms(self) -> bool:
        return self.architecture == "qwen3"

    @property
    def rope_style(self) -> RopeStyle:
        return "interleaved" if self.architecture == "llama" else "half"


@dataclass(frozen=True)
class RawTensor:
    """A tensor as a file holds it: shape is [rows, columns] or [n]."""

    format: str
    shape: tuple[int, ...]
    data: bytes


def random_blocks(format_name: str, rows: int, k: int, rng: np.random.Generator, std: float) -> bytes:
    """`rows` x `k` random weights of about the given standard deviation, as the file's blocks."""
    per_block, block_bytes = BLOCKS[format_name]
    if k % per_block:
        msg = f"{k} columns are no multiple of {format_name}'s block of {per_block}"
        raise ValueError(msg)
    if per_block == 1:
        values = (rng.standard_normal((rows, k)) * std).astype(np.float32)
        if format_name == "BF16":
            return (values.view(np.uint32) >> 16).astype("<u2").tobytes()
        return values.astype("<f4" if format_name == "F32" else "<f2").tobytes()
    count = rows * k // per_block
    blocks = rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)

    def put(offset: int, values: NDArray[np.float64]) -> None:
        blocks[:, offset : offset + 2] = values.astype("<f2").view(np.uint8).reshape(count, 2)

    # Standard deviation of the integers of each format; scales vary by half around the wanted one.
    spread = {"Q4_0": 4.6, "Q4_1": 4.6, "Q5_0": 9.2, "Q5_1": 9.2, "Q8_0": 74.0, "Q4_K": 4.6 * 32, "Q5_K": 9.2 * 32}
    spread |= {"Q6_K": 18.5 * 37, "IQ4_NL": 66.0}
    d = std / spread[format_name] * rng.uniform(0.5, 1.5, count)
    if format_name == "Q6_K":
        blocks[:, 192:208] = rng.integers(-64, 64, (count, 16), dtype=np.int8).view(np.uint8)
        put(208, d)
    else:
        put(0, d)
    middle = {"Q4_1": -7.5, "Q5_1": -15.5, "Q4_K": 7.5, "Q5_K": 15.5}
    if format_name in middle:
        put(2, d * middle[format_name])
    return blocks.tobytes()


def tiny_tensors(model: TinyModel) -> dict[str, RawTensor]:
    """Every tensor of the model by its GGUF name."""
    rng = np.random.default_rng(model.seed)
    tensors: dict[str, RawTensor] = {}

    def matrix(name: str, rows: int, k: int, std: float | None = None) -> None:
        role = name.removesuffix(".weight").split(".", 2)[-1]
        format_name = model.formats.get(role, model.default_format)
        tensors[name] = RawTensor(
            format_name, (rows, k), random_blocks(format_name, rows, k, rng, std or 1.5 / float(np.sqrt(k)))
        )

    def vector(name: str, n: int, mean: float, std: float) -> None:
        values = (mean + std * rng.standard_normal(n)).astype("<f4")
        tensors[name] = RawTensor("F32", (n,), values.tobytes())

    matrix("token_embd.weight", model.vocab, model.embedding, 1.0)
    q_dim, kv_dim = model.heads * model.head_dim, model.kv_heads * model.head_dim
    for i in range(model.layers):
        layer = f"blk.{i}."
        vector(layer + "attn_norm.weight", model.embedding, 1.0, 0.2)
        matrix(layer + "attn_q.weight", q_dim, model.embedding)
        matrix(layer + "attn_k.weight", kv_dim, model.embedding)
        matrix(layer + "attn_v.weight", kv_dim, model.embedding)
        matrix(layer + "attn_output.weight", model.embedding, q_dim)
        if model.attention_bias:
            vector(layer + "attn_q.bias", q_dim, 0.0, 0.3)
            vector(layer + "attn_k.bias", kv_dim, 0.0, 0.3)
            vector(layer + "attn_v.bias", kv_dim, 0.0, 0.3)
        if model.head_norms:
            vector(layer + "attn_q_norm.weight", model.head_dim, 1.0, 0.2)
            vector(layer + "attn_k_norm.weight", model.head_dim, 1.0, 0.2)
        vector(layer + "ffn_norm.weight", model.embedding, 1.0, 0.2)
        matrix(layer + "ffn_gate.weight", model.hidden, model.embedding)
        matrix(layer + "ffn_up.weight", model.hidden, model.embedding)
        matrix(layer + "ffn_down.weight", model.embedding, model.hidden)
        if model.post_norms:
            vector(layer + "post_attention_norm.weight", model.embedding, 1.0, 0.2)
            vector(layer + "post_ffw_norm.weight", model.embedding, 1.0, 0.2)
    vector("output_norm.weight", model.embedding, 1.0, 0.2)
    if not model.tied:
        matrix("output.weight", model.vocab, model.embedding)
    if model.freq_factors:
        n = (model.rotary_dim or model.head_dim) // 2
        tensors["rope_freqs.weight"] = RawTensor("F32", (n,), np.linspace(1.0, 8.0, n).astype("<f4").tobytes())
    return tensors


def tiny_plan(model: TinyModel) -> ModelPlan:
    """The plan of the model, written without models/ so that native tests stand on their own."""

    def linear(layer: str, role: str, bias: bool = False) -> LinearPlan:
        return LinearPlan(f"{layer}{role}.weight", f"{layer}{role}.bias" if bias else None)

    def layer_plan(i: int) -> LayerPlan:
        layer = f"blk.{i}."
        attention = AttentionPlan(
            head_count=model.heads,
            kv_head_count=model.kv_heads,
            head_dim=model.head_dim,
            score_scale=1.0 / float(np.sqrt(model.head_dim)),
            query=linear(layer, "attn_q", model.attention_bias),
            key=linear(layer, "attn_k", model.attention_bias),
            value=linear(layer, "attn_v", model.attention_bias),
            output=linear(layer, "attn_output"),
            rope=RopePlan(
                model.rope_style,
                model.rotary_dim or model.head_dim,
                model.rope_base,
                freq_factors="rope_freqs.weight" if model.freq_factors else None,
            ),
            window=model.windows[i % len(model.windows)],
            query_norm=layer + "attn_q_norm.weight" if model.head_norms else None,
            key_norm=layer + "attn_k_norm.weight" if model.head_norms else None,
        )
        ffn = FeedForwardPlan(
            hidden=model.hidden,
            activation=model.activation,
            gate=linear(layer, "ffn_gate"),
            up=linear(layer, "ffn_up"),
            down=linear(layer, "ffn_down"),
        )
        return LayerPlan(
            attention_norm=layer + "attn_norm.weight",
            attention=attention,
            ffn_norm=layer + "ffn_norm.weight",
            ffn=ffn,
            post_attention_norm=layer + "post_attention_norm.weight" if model.post_norms else None,
            post_ffn_norm=layer + "post_ffw_norm.weight" if model.post_norms else None,
        )

    return ModelPlan(
        architecture=model.architecture,
        vocab_size=model.vocab,
        embedding_dim=model.embedding,
        context_length=model.context,
        norm_epsilon=1e-5,
        token_embedding="token_embd.weight",
        output_norm="output_norm.weight",
        output=LinearPlan("token_embd.weight" if model.tied else "output.weight"),
        layers=tuple(layer_plan(i) for i in range(model.layers)),
        embedding_scale=model.embedding_scale,
    )


def _byte_tokens() -> list[str]:
    """The 256 byte tokens of byte-level BPE: printable bytes stand for themselves, the others from U+0100 up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def write_gguf(path: Path, model: TinyModel, extra_metadata: Mapping[str, Any] | None = None) -> Path:
    """Writes the model with a byte-level tokenizer (256 bytes, three specials, fillers) and a ChatML template.

    `extra_metadata` adds string, bool, int (uint32) or float keys; it cannot carry windows or post norms, which
    no supported model type reads from a file.
    """
    writer = gguf.GGUFWriter(path, model.architecture)
    writer.add_context_length(model.context)
    writer.add_block_count(model.layers)
    writer.add_embedding_length(model.embedding)
    writer.add_feed_forward_length(model.hidden)
    writer.add_head_count(model.heads)
    writer.add_head_count_kv(model.kv_heads)
    writer.add_key_length(model.head_dim)
    writer.add_value_length(model.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(model.rotary_dim or model.head_dim)
    writer.add_rope_freq_base(model.rope_base)
    writer.add_vocab_size(model.vocab)
    tokens = [*_byte_tokens(), *SPECIAL_TOKENS]
    types = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * len(SPECIAL_TOKENS)
    fillers = model.vocab - len(tokens)
    if fillers < 1:
        msg = f"vocab must be at least {len(tokens) + 1}"
        raise ValueError(msg)
    tokens += ["he", *(f"filler{i}" for i in range(fillers - 1))]
    types += [gguf.TokenType.NORMAL] + [gguf.TokenType.UNUSED] * (fillers - 1)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(258)
    writer.add_bos_token_id(256)
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(CHAT_TEMPLATE)
    for key, value in (extra_metadata or {}).items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_string(key, value)
    for name, tensor in tiny_tensors(model).items():
        kind = gguf.GGMLQuantizationType[tensor.format]
        raw = np.frombuffer(tensor.data, dtype=np.uint8)
        per_block, block_bytes = BLOCKS[tensor.format]
        columns = tensor.shape[-1] // per_block * block_bytes
        writer.add_tensor(name, raw.reshape(*tensor.shape[:-1], columns), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
