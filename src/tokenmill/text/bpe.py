"""Byte-level BPE: a word's UTF-8 bytes, written as printable characters, merged by rank.

The merging is done by the `tokenizers` library (a heap per word: n log n for n bytes), once for each word: words
repeat, so their tokens are remembered, which makes prose five times as fast. The library knows no symbol without an id,
while real vocabularies lack a byte here and there, and a merge may make a text that is no token. Such symbols get a
provisional id; after the merging they fall apart into the tokens of their characters, and a character that has none is
lost (as with the reference tokenizer: the model cannot see it).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

from tokenizers import Tokenizer as MergeEngine
from tokenizers import models, pre_tokenizers

from tokenmill.text.pretokenizers import Splitter
from tokenmill.text.token_table import TokenTable
from tokenmill.vocabulary.errors import ModelFileError

_REMEMBERED_WORDS = 1 << 16
_REMEMBERED_LENGTH = 48


def _printable_bytes() -> list[str]:
    """Character of each byte value: itself where it is printable Latin-1, else the next free one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    characters = []
    for value in range(256):
        if value in printable:
            characters.append(chr(value))
        else:
            characters.append(chr(0x100 + value - sum(1 for other in printable if other < value)))
    return characters


CHARACTER_OF_BYTE = _printable_bytes()
BYTE_OF_CHARACTER = {character: bytes([value]) for value, character in enumerate(CHARACTER_OF_BYTE)}


def decode_byte_level(text: str) -> bytes:
    """Bytes of a token's text. A character outside the notation stands for its own UTF-8 bytes."""
    return b"".join(BYTE_OF_CHARACTER.get(character) or character.encode() for character in text)


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    if not left or not right:
        raise ModelFileError(f"merge {merge!r} is not a pair", where="tokenizer.ggml.merges")
    return left, right


class ByteLevelBpe:
    """Encodes text without special tokens.

    Args:
        table: the tokens.
        merges: `left right` in order of rank.
        splitter: the pre-tokenizer.
        ignore_merges: a word that is a token is taken as it is.

    Raises:
        ModelFileError: a merge is not a pair.
    """

    def __init__(self, table: TokenTable, merges: Sequence[str], splitter: Splitter, *, ignore_merges: bool) -> None:
        self._splitter = splitter
        vocabulary = dict(table.id_of)
        pairs = list(dict.fromkeys(map(_pair, merges)))
        symbols = {*CHARACTER_OF_BYTE, *map("".join, pairs), *chain.from_iterable(pairs)}
        for symbol in sorted(symbols - vocabulary.keys()):
            vocabulary[symbol] = len(vocabulary)
        self._provisional = {
            token: tuple(table.id_of[char] for char in text if char.isascii() and char in table.id_of)
            for text, token in islice(vocabulary.items(), len(table.id_of), None)
        }
        self._engine = MergeEngine(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=ignore_merges))
        self._remembered: dict[str, list[int]] = {}
        self._engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, which holds no lone surrogates."""
        words = self._splitter.split(text)
        known = self._remembered
        fresh = self._merge([word for word in dict.fromkeys(words) if word not in known])
        ids: list[int] = []
        for word in words:
            tokens = known.get(word)
            ids += fresh[word] if tokens is None else tokens
        if len(known) + len(fresh) > _REMEMBERED_WORDS:
            self._remembered = {}
        else:
            known.update((word, tokens) for word, tokens in fresh.items() if len(word) <= _REMEMBERED_LENGTH)
        return ids

    def _merge(self, words: list[str]) -> dict[str, list[int]]:
        """Token ids of each word."""
        tokens_of: list[list[int]] = [[] for _ in words]
        encoding = self._engine.encode(words, is_pretokenized=True)
        for token, number in zip(encoding.ids, encoding.word_ids, strict=True):
            if number is not None:
                tokens_of[number] += self._provisional.get(token, (token,))
        return dict(zip(words, tokens_of, strict=True))
