"""Small vocabularies for tests, as model file metadata."""

from __future__ import annotations

from tokenmill.text.bpe import CHARACTER_OF_BYTE
from tokenmill.vocabulary.model_file import MetadataValue

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def byte_level(
    merges: tuple[str, ...] = ("h e", "l l", "he ll", "hell o", "Ġ w"),
    special: tuple[tuple[str, int], ...] = (
        ("<|im_start|>", CONTROL),
        ("<|im_end|>", CONTROL),
        ("<tool>", USER_DEFINED),
    ),
    **more: MetadataValue,
) -> dict[str, MetadataValue]:
    """All 256 bytes, the products of `merges`, then the special tokens."""
    texts = [*CHARACTER_OF_BYTE, *(merge.replace(" ", "") for merge in merges)]
    kinds = [NORMAL] * len(texts) + [kind for _, kind in special]
    texts.extend(text for text, _ in special)
    metadata: dict[str, MetadataValue] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tuple(texts),
        "tokenizer.ggml.token_type": tuple(kinds),
        "tokenizer.ggml.merges": merges,
    }
    return metadata | {f"tokenizer.ggml.{key}": value for key, value in more.items()}


def sentence_piece(**more: MetadataValue) -> dict[str, MetadataValue]:
    """`<unk>`, `<s>`, `</s>`, 256 byte tokens, a few pieces and a user-defined token."""
    pieces = ["▁", "h", "e", "l", "o", "▁h", "ll", "el", "he", "▁he", "ello", "▁hello", "▁▁", "a", "aa"]
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{value:02X}>" for value in range(256)), *pieces, "<tool>"]
    metadata: dict[str, MetadataValue] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tuple(texts),
        "tokenizer.ggml.token_type": (UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces), USER_DEFINED),
        "tokenizer.ggml.scores": (*[0.0] * 259, *(-float(rank) for rank in range(len(pieces))), 0.0),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return metadata | {f"tokenizer.ggml.{key}": value for key, value in more.items()}
