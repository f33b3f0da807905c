"""Tiny models that have every format and every feature of a plan between them."""

from __future__ import annotations

from tiny_models import TinyModel

SIMPLE_FORMATS = {
    "token_embd": "Q5_1",
    "attn_q": "Q4_0",
    "attn_k": "Q5_0",
    "attn_v": "Q8_0",
    "attn_output": "Q4_1",
    "ffn_gate": "IQ4_NL",
    "ffn_up": "Q5_1",
    "ffn_down": "Q8_0",
    "output": "Q4_1",
}
K_FORMATS = {
    "token_embd": "Q6_K",
    "attn_q": "Q4_K",
    "attn_k": "Q5_K",
    "attn_v": "Q6_K",
    "attn_output": "Q5_K",
    "ffn_gate": "Q4_K",
    "ffn_up": "Q5_K",
    "ffn_down": "Q6_K",
}
FLOAT_FORMATS = {"attn_q": "F16", "attn_k": "BF16", "attn_v": "F32", "ffn_up": "F16", "ffn_down": "Q4_0"}

# Between them: every format, group sizes 2, 3 and 4, biases, head norms, windows inside and across blocks, post norms,
# both rotations, partial rotation, frequency factors, both activations, rows that fill no whole panel.
MODELS = {
    "simple formats": TinyModel(
        "qwen2", windows=(0, 70, 300), layers=3, formats=SIMPLE_FORMATS, tied=False, vocab=301, post_norms=True
    ),
    "k formats": TinyModel(
        "qwen3", layers=1, embedding=256, heads=8, kv_heads=2, head_dim=32, hidden=256, formats=K_FORMATS
    ),
    "float formats": TinyModel(
        "llama",
        heads=3,
        kv_heads=1,
        head_dim=24,
        rotary_dim=16,
        freq_factors=True,
        activation="gelu_tanh",
        embedding_scale=8.0,
        default_format="BF16",
        formats=FLOAT_FORMATS,
    ),
}
