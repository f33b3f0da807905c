"""Text to token ids and back, exactly as the model's own tokenizer does it.

Supported are the vocabularies of GGUF files whose `tokenizer.ggml.model` is `gpt2` (byte-level BPE) or `llama`
(SentencePiece BPE). Tokens are found in three steps: special tokens by their texts, the text between them cut into
words (byte-level only), words into tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from tokenmill.text.bpe import ByteLevelBpe, decode_byte_level
from tokenmill.text.pretokenizers import find_pre_tokenizer
from tokenmill.text.spm import SPACE_MARK, SentencePieceBpe
from tokenmill.text.token_table import TokenKind, TokenTable
from tokenmill.vocabulary.errors import ModelFileError, UnsupportedModelError
from tokenmill.vocabulary.model_file import MetadataValue

_NOT_TEXT = TokenKind.CONTROL | TokenKind.UNKNOWN
_SPECIAL = _NOT_TEXT | TokenKind.USER_DEFINED
_SURROGATE = re.compile("[\ud800-\udfff]")
_ASCII_SPACE = " \t\n\v\f\r"


def without_surrogates(text: str) -> str:
    """`text` with U+FFFD for each lone surrogate, which is no character and has no UTF-8."""
    return _SURROGATE.sub("\ufffd", text) if _SURROGATE.search(text) else text


class _Encoder(Protocol):
    def encode(self, text: str) -> list[int]: ...


class Tokenizer:
    """The tokenizer of one model. Methods may be called from any thread.

    Attributes:
        vocab_size: number of tokens.
        bos_id: begin-of-sequence token, or None.
        eos_id: end-of-sequence token, or None.
        add_bos: whether the model wants a BOS in front of a sequence.
        add_eos: whether `add_special` also appends EOS (rare in generating models).
        add_space_prefix: SentencePiece's rule: text after the start or after a special token gains a leading space.
        stop_ids: every token that ends a generation.
        control_texts: what `parse_special` turns into control tokens, longest first.
    """

    def __init__(
        self, table: TokenTable, encoder: _Encoder, *, byte_level: bool, add_bos: bool, add_space_prefix: bool
    ) -> None:
        self._table = table
        self._encoder = encoder
        self._byte_level = byte_level
        self.vocab_size = len(table.texts)
        self.bos_id = table.bos_id
        self.eos_id = table.eos_id
        self.add_bos = add_bos and table.bos_id is not None
        self.add_eos = bool(table.add_eos) and table.eos_id is not None
        self.add_space_prefix = add_space_prefix
        self.stop_ids = table.stop_ids
        self._token_bytes: list[bytes | None] = [None] * self.vocab_size
        specials = [token for token, kind in enumerate(table.kinds) if kind & _SPECIAL]
        # Longest first, as a special token may contain another; among equals the lower id.
        self._specials = sorted(specials, key=lambda token: -len(table.texts[token].encode()))
        self.control_texts = tuple(table.texts[token] for token in self._specials if table.kinds[token] & _NOT_TEXT)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, MetadataValue]) -> Tokenizer:
        """Build the tokenizer of a model file.

        Args:
            metadata: the file's metadata, `tokenizer.ggml.*` among it.

        Raises:
            UnsupportedModelError: the kind of tokenizer or pre-tokenizer is not supported; the message names it.
            ModelFileError: the vocabulary is missing or damaged.
        """
        model = metadata.get("tokenizer.ggml.model")
        if model == "gpt2":
            table = TokenTable.from_metadata(metadata)
            kind = find_pre_tokenizer(str(metadata.get("tokenizer.ggml.pre", "")))
            merges = metadata.get("tokenizer.ggml.merges")
            if not isinstance(merges, tuple) or not all(isinstance(merge, str) for merge in merges):
                raise ModelFileError("the merges are missing or not a list of strings", where="tokenizer.ggml.merges")
            encoder: _Encoder = ByteLevelBpe(
                table, [str(merge) for merge in merges], kind.compile(), ignore_merges=kind.ignore_merges
            )
            add_bos = kind.add_bos if table.add_bos is None else table.add_bos
            return cls(table, encoder, byte_level=True, add_bos=add_bos, add_space_prefix=False)
        if model == "llama":
            table = TokenTable.from_metadata(metadata)
            prefix = metadata.get("tokenizer.ggml.add_space_prefix", True)
            add_bos = True if table.add_bos is None else table.add_bos
            return cls(table, SentencePieceBpe(table), byte_level=False, add_bos=add_bos, add_space_prefix=bool(prefix))
        raise UnsupportedModelError(
            f"tokenizer {model!r} is not supported" if model else "the file holds no tokenizer",
            where="tokenizer.ggml.model",
            hint="supported: gpt2 (byte-level BPE), llama (SentencePiece BPE)",
        )

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`.

        Args:
            text: any string; lone surrogates count as U+FFFD.
            add_special: put a BOS in front (and EOS behind) where the model wants it.
            parse_special: read control tokens' texts as those tokens. When False they are encoded like other text;
                user-defined tokens are found in both cases.
        """
        ids = [self.bos_id] if add_special and self.add_bos and self.bos_id is not None else []
        after_special = True
        for fragment in self.partition(text, parse_special=parse_special):
            if isinstance(fragment, str):
                ids.extend(self.encode_fragment(fragment, after_special=after_special))
                after_special = False
            else:
                ids.append(fragment)
                after_special = True
        if add_special and self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def encode_fragment(self, text: str, *, after_special: bool) -> list[int]:
        """Token ids of a text in which nothing is special.

        Args:
            text: the text between two special tokens.
            after_special: it is at the start or follows a special token.
        """
        text = without_surrogates(text)
        if self._byte_level:
            return self._encoder.encode(text)
        if self.add_space_prefix and after_special:
            text = " " + text
        return self._encoder.encode(text.replace(" ", SPACE_MARK))

    def partition(self, text: str, *, parse_special: bool) -> list[str | int]:
        """Cut `text` at its special tokens: texts (never empty) and token ids in order.

        The longest special token is looked for first, everywhere, then the next: that is the reference's rule, and it
        differs from a left-to-right search when special tokens overlap.
        """
        fragments: list[str | int] = [text] if text else []
        for token in self._specials:
            if not parse_special and self._table.kinds[token] & _NOT_TEXT:
                continue
            special = self._table.texts[token]
            if special not in text:
                continue
            strip = token in self._table.strip_after_special
            finer: list[str | int] = []
            for fragment in fragments:
                if isinstance(fragment, str) and special in fragment:
                    for number, part in enumerate(fragment.split(special)):
                        if number:
                            finer.append(token)
                        rest = part.lstrip(_ASCII_SPACE) if number and strip else part
                        if rest:
                            finer.append(rest)
                else:
                    finer.append(fragment)
            fragments = finer
        return fragments

    def is_control(self, token_id: int) -> bool:
        """Whether the token is a control (or unknown) token, which is no part of the text."""
        return bool(self._table.kinds[token_id] & _NOT_TEXT)

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary writes it, control tokens too; for display."""
        return self._table.texts[token_id]

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token adds to the text: possibly a part of a character, and none for control tokens.

        Raises:
            IndexError: no such token.
        """
        if token_id < 0:
            raise IndexError(token_id)
        known = self._token_bytes[token_id]
        if known is None:
            known = self._token_bytes[token_id] = self._decode_token(token_id)
        return known

    def _decode_token(self, token_id: int) -> bytes:
        kind, text = self._table.kinds[token_id], self._table.texts[token_id]
        if kind & _NOT_TEXT:
            return b""
        if kind & TokenKind.USER_DEFINED:
            return text.encode()
        if kind & TokenKind.NORMAL:
            return decode_byte_level(text) if self._byte_level else text.replace(SPACE_MARK, " ").encode()
        if kind & TokenKind.BYTE:
            return bytes([int(text[3:5], 16)]) if re.fullmatch("<0x[0-9A-F]{2}>", text) else text.encode()
        return b""

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a whole sequence: control tokens left out, the space that SentencePiece put in front removed.

        Invalid UTF-8 becomes U+FFFD.
        """
        data = b"".join(map(self.token_bytes, ids))
        if self.add_space_prefix and data.startswith(b" "):
            data = data[1:]
        return data.decode("utf-8", "replace")
