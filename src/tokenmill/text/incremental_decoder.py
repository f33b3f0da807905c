"""Text of a growing token sequence, piece by piece, never half a character."""

from __future__ import annotations

import codecs

from tokenmill.text.tokenizer import Tokenizer


class IncrementalDecoder:
    """Turns tokens into text deltas; the deltas joined equal the decoding of the whole.

    Bytes that may still become a character are held back. Bytes that cannot are given as U+FFFD as soon as that is
    certain, at the latest by `finish`.

    Args:
        tokenizer: gives the bytes of tokens.
        at_start: the tokens begin a text (they are not the continuation of a prompt), so the space that SentencePiece
            puts in front of a text is removed.
    """

    def __init__(self, tokenizer: Tokenizer, *, at_start: bool = False) -> None:
        self._tokenizer = tokenizer
        self._strips_space = at_start and tokenizer.add_space_prefix
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that became certain with this token; often empty within a multi-byte character."""
        data = self._tokenizer.token_bytes(token_id)
        if data and self._strips_space:
            self._strips_space = False
            data = data.removeprefix(b" ")
        return self._utf8.decode(data)

    def finish(self) -> str:
        """What was held back: U+FFFD for an unfinished character, else nothing. The decoder can be used anew."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest
