"""SentencePiece BPE: characters merged while the pair makes a token, the best score first, the leftmost on a tie.

Two facts keep it fast in Python without changing a result. A merge needs a token that holds the two neighbouring
characters, so text may be cut wherever no token does: the parts cannot influence each other. And the parts, mostly
words, repeat, so their tokens are remembered.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from tokenmill.text.token_table import TokenKind, TokenTable
from tokenmill.vocabulary.errors import ModelFileError

SPACE_MARK = "▁"
_REMEMBERED_PARTS = 1 << 16
_REMEMBERED_LENGTH = 48


class SentencePieceBpe:
    """Encodes text without special tokens.

    Args:
        table: the tokens, with one score each.

    Raises:
        ModelFileError: scores are missing, or a byte has no token.
    """

    def __init__(self, table: TokenTable) -> None:
        if not table.scores:
            raise ModelFileError("a SentencePiece vocabulary needs scores", where="tokenizer.ggml.scores")
        self._id_of = {text: token for text, token in table.id_of.items() if not table.kinds[token] & TokenKind.CONTROL}
        self._negative_score = {text: -table.scores[token] for text, token in self._id_of.items()}
        self._neighbours = {text[at : at + 2] for text in self._id_of for at in range(len(text) - 1)}
        self._byte_ids = [self._byte_id(table, value) for value in range(256)]
        self._remembered: dict[str, tuple[int, ...]] = {}

    @staticmethod
    def _byte_id(table: TokenTable, value: int) -> int | None:
        return table.id_of.get(f"<0x{value:02X}>", table.id_of.get(chr(value)) if value < 0x80 else None)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, in which spaces are already `▁` and which holds no lone surrogates."""
        ids: list[int] = []
        start = 0
        for at in range(1, len(text) + 1):
            if at == len(text) or text[at - 1 : at + 1] not in self._neighbours:
                ids.extend(self._encode_part(text[start:at]))
                start = at
        return ids

    def _encode_part(self, part: str) -> tuple[int, ...]:
        known = self._remembered.get(part)
        if known is None:
            known = self._merge(part)
            if len(part) <= _REMEMBERED_LENGTH:
                if len(self._remembered) >= _REMEMBERED_PARTS:
                    self._remembered = {}
                self._remembered[part] = known
        return known

    def _merge(self, part: str) -> tuple[int, ...]:
        count = len(part)
        pieces = list(part)
        before = list(range(-1, count - 1))
        after = [*range(1, count), -1]
        score_of = self._negative_score.get
        # Entries: negative score, left piece, right piece, length of the two together when they were seen.
        queue: list[tuple[float, int, int, int]] = []
        for right in range(1, count):
            score = score_of(part[right - 1 : right + 1])
            if score is not None:
                queue.append((score, right - 1, right, 2))
        heapify(queue)
        while queue:
            _, left, right, length = heappop(queue)
            left_piece, right_piece = pieces[left], pieces[right]
            if not left_piece or not right_piece or len(left_piece) + len(right_piece) != length:
                continue  # one of the two has been merged since
            merged = left_piece + right_piece
            pieces[left], pieces[right] = merged, ""
            following = after[left] = after[right]
            if following >= 0:
                before[following] = left
                score = score_of(merged + pieces[following])
                if score is not None:
                    heappush(queue, (score, left, following, length + len(pieces[following])))
            preceding = before[left]
            if preceding >= 0:
                score = score_of(pieces[preceding] + merged)
                if score is not None:
                    heappush(queue, (score, preceding, left, length + len(pieces[preceding])))
        ids: list[int] = []
        for piece in filter(None, pieces):
            token = self._id_of.get(piece)
            if token is not None:
                ids.append(token)
            else:
                ids.extend(self._byte_token(value) for value in piece.encode())
        return tuple(ids)

    def _byte_token(self, value: int) -> int:
        token = self._byte_ids[value]
        if token is None:
            raise ModelFileError(f"the vocabulary has no token for byte 0x{value:02X}", where="tokenizer.ggml.tokens")
        return token
