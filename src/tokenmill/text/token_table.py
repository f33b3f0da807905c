"""The tokens of a model file: their texts and kinds, the special ones, and which of them end a generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tokenmill.vocabulary.errors import ModelFileError
from tokenmill.vocabulary.model_file import MetadataValue


class TokenKind:
    """What a token is, as bits; several can hold after the repairs of `TokenTable.from_metadata`.

    Plain integers: there are some 100,000 tokens, and `enum.IntFlag` would triple the time to load a tokenizer.
    """

    UNDEFINED: Final = 0
    NORMAL: Final = 1
    UNKNOWN: Final = 2
    CONTROL: Final = 4
    USER_DEFINED: Final = 8
    UNUSED: Final = 16
    BYTE: Final = 32


_KIND_OF_FILE_VALUE = {
    1: TokenKind.NORMAL,
    2: TokenKind.UNKNOWN,
    3: TokenKind.CONTROL,
    4: TokenKind.USER_DEFINED,
    5: TokenKind.UNUSED,
    6: TokenKind.BYTE,
}

# Files name at most one end token each, while chat models have several; the rest is known by its text.
_END_TEXTS = frozenset(
    {
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|flush|>",
        "<|calls|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "</s>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "[EOS]",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "<eos>",
        "<turn|>",
        "<|tool_response>",
        "<｜end▁of▁sentence｜>",
        "[e~[",
    }
)
# Fill-in-the-middle tokens by their texts. A model that writes a padding, repository or file separator token is done.
_FIM_TEXTS: dict[str, tuple[str, ...]] = {
    "fim_pre": (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
_OLD_FIM_KEYS = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}
_FIM_END = ("fim_pad", "fim_rep", "fim_sep")
# Tokens that structure an answer in the harmony format: part of the text, whatever the file says.
_HARMONY_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Tokens by id.

    Attributes:
        texts: as in the file (byte-level or `▁` notation); empty ones are renamed, as they would match everywhere.
        kinds: bits of TokenKind, one number per token.
        id_of: text to id.
        scores: one per token (SentencePiece), or empty.
        bos_id: begin-of-sequence token, or None.
        eos_id: end-of-sequence token, or None.
        stop_ids: every token that ends a generation.
        add_bos: as the file says, None when it is silent.
        add_eos: as the file says, None when it is silent.
        strip_after_special: white space after these tokens is not part of the text (Phi-3).
    """

    texts: tuple[str, ...]
    kinds: tuple[int, ...]
    id_of: Mapping[str, int]
    scores: Sequence[float]
    bos_id: int | None
    eos_id: int | None
    stop_ids: frozenset[int]
    add_bos: bool | None
    add_eos: bool | None
    strip_after_special: frozenset[int]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, MetadataValue]) -> TokenTable:
        """Read and repair the table.

        Raises:
            ModelFileError: the token list is missing, has duplicates, or the arrays do not fit together.
        """
        texts = _texts(metadata)
        count = len(texts)
        id_of = {text: token for token, text in enumerate(texts)}
        if len(id_of) != count:
            raise ModelFileError(f"{count - len(id_of)} tokens occur twice", where="tokenizer.ggml.tokens")
        file_kinds = _numbers(metadata, "token_type", count)
        kinds: list[int] = [_KIND_OF_FILE_VALUE.get(int(kind), TokenKind.UNDEFINED) for kind in file_kinds]
        kinds = kinds or [TokenKind.NORMAL] * count
        has_default_ids = metadata.get("tokenizer.ggml.model") == "llama"
        bos_id = _special(metadata, "bos", count, 1 if has_default_ids else None)
        eos_id = _special(metadata, "eos", count, 2 if has_default_ids else None)
        named_ends = {eos_id, _special(metadata, "eot", count, None), _special(metadata, "eom", count, None)}
        for name, candidates in _FIM_TEXTS.items():
            token = _fim_token(metadata, name, candidates, id_of, kinds)
            if name in _FIM_END:
                named_ends.add(token)
        ends = {id_of[text] for text in _END_TEXTS if text in id_of}
        for token in ends:
            kinds[token] |= TokenKind.CONTROL
        ends.update(token for token in named_ends if token is not None)
        _apply_harmony(id_of, kinds, ends)
        return cls(
            texts=texts,
            kinds=tuple(kinds),
            id_of=id_of,
            scores=_numbers(metadata, "scores", count),
            bos_id=bos_id,
            eos_id=eos_id,
            stop_ids=frozenset(ends),
            add_bos=_flag(metadata, "add_bos_token"),
            add_eos=_flag(metadata, "add_eos_token"),
            strip_after_special=_strip_after_special(metadata, id_of, kinds),
        )


def _texts(metadata: Mapping[str, MetadataValue]) -> tuple[str, ...]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, tuple) or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ModelFileError("the token list is missing or is not a list of strings", where="tokenizer.ggml.tokens")
    return tuple(str(text) or f"[EMPTY_{token}]" for token, text in enumerate(tokens))


def _numbers(metadata: Mapping[str, MetadataValue], name: str, count: int) -> tuple[float, ...]:
    values = metadata.get(f"tokenizer.ggml.{name}")
    if values is None:
        return ()
    if not isinstance(values, tuple) or len(values) < count or any(isinstance(value, str) for value in values):
        raise ModelFileError(f"not a list of at least {count} numbers", where=f"tokenizer.ggml.{name}")
    return tuple(map(float, values[:count]))


def _flag(metadata: Mapping[str, MetadataValue], name: str) -> bool | None:
    value = metadata.get(f"tokenizer.ggml.{name}")
    return value if isinstance(value, bool) else None


def _special(metadata: Mapping[str, MetadataValue], name: str, count: int, default: int | None) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{name}_token_id", default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < count:
        return default if default is not None and default < count else None
    return value


def _fim_token(
    metadata: Mapping[str, MetadataValue],
    name: str,
    candidates: Sequence[str],
    id_of: Mapping[str, int],
    kinds: list[int],
) -> int | None:
    """The token of one fill-in-the-middle role; one that is found by its text becomes a control token."""
    declared = _special(metadata, _OLD_FIM_KEYS.get(name, name), len(kinds), None)
    if declared is None:
        declared = _special(metadata, name, len(kinds), None)
    if declared is not None:
        return declared
    found = next((id_of[text] for text in candidates if text in id_of), None)
    if found is not None:
        kinds[found] |= TokenKind.CONTROL
    return found


def _apply_harmony(id_of: Mapping[str, int], kinds: list[int], ends: set[int]) -> None:
    """In the harmony format `<|end|>` closes one message of an answer, not the answer."""
    for text in _HARMONY_TEXTS:
        if text in id_of:
            kinds[id_of[text]] = TokenKind.USER_DEFINED
    has_call = "<|call|>" in id_of or "<|calls|>" in id_of
    closes_messages_only = ("<|return|>" in id_of or "<|flush|>" in id_of) and has_call
    if closes_messages_only and "<|end|>" in id_of:
        ends.discard(id_of["<|end|>"])
        kinds[id_of["<|end|>"]] = TokenKind.USER_DEFINED


def _strip_after_special(
    metadata: Mapping[str, MetadataValue], id_of: Mapping[str, int], kinds: Sequence[int]
) -> frozenset[int]:
    """Phi-3 files do not carry the strip attributes of their special tokens; they are known by the model's name."""
    name = str(metadata.get("general.name", "")).lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    special = TokenKind.CONTROL | TokenKind.USER_DEFINED | TokenKind.UNKNOWN
    stripping = {token for token, kind in enumerate(kinds) if kind & special}
    stripping.update(id_of[text] for text in ("</s>",) if text in id_of)
    stripping.difference_update(id_of[text] for text in ("<unk>", "<s>", "<|endoftext|>") if text in id_of)
    return frozenset(stripping)
