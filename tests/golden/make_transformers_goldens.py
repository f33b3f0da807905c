"""Makes tests/golden/models/: tiny random models as GGUF files, with the logits that `transformers` gives for them.

    python tests/golden/make_transformers_goldens.py

Needs torch (a CPU build), transformers and gguf; their versions are recorded beside the logits. Weights are F32.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers import LlamaConfig, MistralConfig, PreTrainedModel, Qwen2Config, Qwen3Config

TARGET = Path(__file__).parent / "models"
TOKENS = 80
SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# The original context is short, so that all three branches of Llama 3's frequency scaling are taken.
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
CONFIGS = {
    "llama3": LlamaConfig(**SIZES, head_dim=16, tie_word_embeddings=True, rope_parameters=LLAMA3_ROPE),
    "llama_linear": LlamaConfig(
        **SIZES, head_dim=8, attention_bias=True, mlp_bias=True, tie_word_embeddings=False, rope_parameters=LINEAR_ROPE
    ),
    "mistral": MistralConfig(
        **SIZES, head_dim=8, sliding_window=12, tie_word_embeddings=False, rope_parameters=PLAIN_ROPE
    ),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=False, rope_parameters=PLAIN_ROPE | {"rope_theta": 1000000.0}),
    "qwen3": Qwen3Config(**SIZES, head_dim=24, tie_word_embeddings=True, rope_parameters=PLAIN_ROPE),
}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def randomize(model: PreTrainedModel) -> None:
    """Weights large enough that every part matters: fresh models are nearly the identity and have zero biases."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0.0, 0.5)
            elif "norm" in name:
                parameter.normal_(1.0, 0.3)
            else:
                parameter.normal_(0.0, 1.5 / parameter.shape[-1] ** 0.5)


def gguf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, index, part = stem.split(".", 3)
        return f"blk.{index}.{NAMES[part]}.{kind}"
    return f"{NAMES[stem]}.{kind}"


def interleave(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Row order of a GGUF "llama" file: in each head, row i and row i + head_dim/2 become neighbours."""
    pairs = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return np.ascontiguousarray(np.moveaxis(pairs, 1, 2)).reshape(rows.shape)


def llama3_factors(head_dim: int) -> NDArray[np.float32]:
    """By how much Llama 3 divides each frequency: 1 for short wavelengths, `factor` for long ones, a ramp between."""
    rope = LLAMA3_ROPE
    wavelength = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
    turns = rope["original_max_position_embeddings"] / wavelength
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def write_gguf(name: str, model: PreTrainedModel) -> None:
    config = model.config
    architecture = config.model_type.replace("mistral", "llama")
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer = gguf.GGUFWriter(TARGET / f"{name}.gguf", architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if config.rope_parameters["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_parameters["factor"])
    if config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(head_dim))
    if config.model_type == "mistral":
        writer.add_sliding_window(config.sliding_window)
    for parameter, value in model.state_dict().items():
        rows = value.detach().numpy().astype(np.float32)
        if parameter == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if architecture == "llama" and ".q_proj." in parameter:
            rows = interleave(rows, config.num_attention_heads)
        if architecture == "llama" and ".k_proj." in parameter:
            rows = interleave(rows, config.num_key_value_heads)
        writer.add_tensor(gguf_name(parameter), rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for seed, (name, config) in enumerate(CONFIGS.items()):
        torch.manual_seed(seed)
        config._attn_implementation = "eager"
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        randomize(model)
        write_gguf(name, model)
        tokens = torch.randint(0, config.vocab_size, (1, TOKENS))
        with torch.no_grad():
            logits = model.double()(tokens).logits[0].numpy()
        np.savez_compressed(
            TARGET / f"{name}.npz",
            tokens=tokens[0].numpy().astype(np.int32),
            logits=logits.astype(np.float32),
            made_by=f"transformers {transformers.__version__}, torch {torch.__version__}",
        )
        print(name, float(np.abs(logits).max()))


if __name__ == "__main__":
    main()
