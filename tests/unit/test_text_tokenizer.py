"""The tokenizer on small vocabularies: special tokens, BOS, repairs, errors. Exactness is the goldens' matter."""

from __future__ import annotations

import pytest
import text_vocabularies as vocabularies
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.text.incremental_decoder import IncrementalDecoder
from tokenmill.text.tokenizer import Tokenizer
from tokenmill.vocabulary.errors import ModelFileError, UnsupportedModelError

BYTE_LEVEL = Tokenizer.from_metadata(vocabularies.byte_level(bos_token_id=261, eos_token_id=262))
SENTENCE_PIECE = Tokenizer.from_metadata(vocabularies.sentence_piece())
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


def texts_of(tokenizer: Tokenizer, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[str]:
    ids = tokenizer.encode(text, add_special=add_special, parse_special=parse_special)
    return [tokenizer.token_text(token) for token in ids]


def test_merges_by_rank() -> None:
    assert texts_of(BYTE_LEVEL, "hello wo") == ["hello", "Ġw", "o"]


def test_sentence_piece_takes_the_best_score_first() -> None:
    assert texts_of(SENTENCE_PIECE, "hello") == ["▁he", "ll", "o"]
    assert texts_of(SENTENCE_PIECE, "  a") == ["▁▁", "▁", "a"]
    assert texts_of(SENTENCE_PIECE, "aaa") == ["▁", "aa", "a"]
    assert texts_of(SENTENCE_PIECE, "é") == ["▁", "<0xC3>", "<0xA9>"]


def test_special_text_is_text_unless_asked_for() -> None:
    assert texts_of(BYTE_LEVEL, "<|im_end|>", parse_special=True) == ["<|im_end|>"]
    assert texts_of(BYTE_LEVEL, "<|im_end|>") == list("<|im_end|>")
    assert texts_of(BYTE_LEVEL, "a<tool>b") == ["a", "<tool>", "b"], "user-defined tokens are text and always found"
    assert texts_of(SENTENCE_PIECE, "<s>") == ["▁", *(f"<0x{byte:02X}>" for byte in b"<s>")]


def test_space_prefix_after_special_tokens() -> None:
    assert texts_of(SENTENCE_PIECE, "he</s>he", parse_special=True) == ["▁he", "</s>", "▁he"]
    without = Tokenizer.from_metadata(vocabularies.sentence_piece(add_space_prefix=False))
    assert texts_of(without, "he") == ["he"]


def test_longer_special_tokens_win() -> None:
    special = (("<a>", 3), ("<a><b>", 3))
    tokenizer = Tokenizer.from_metadata(vocabularies.byte_level(special=special))
    assert texts_of(tokenizer, "<a><a><b>", parse_special=True) == ["<a>", "<a><b>"]


def test_bos_and_eos() -> None:
    assert not BYTE_LEVEL.add_bos
    assert texts_of(SENTENCE_PIECE, "", add_special=True) == ["<s>"]
    eos_too = Tokenizer.from_metadata(vocabularies.sentence_piece(add_bos_token=False, add_eos_token=True))
    assert texts_of(eos_too, "", add_special=True) == ["</s>"]
    llama3 = Tokenizer.from_metadata(vocabularies.byte_level(bos_token_id=261, pre="llama-bpe"))
    assert llama3.add_bos
    without_bos_token = Tokenizer.from_metadata(vocabularies.byte_level(pre="llama-bpe"))
    assert not without_bos_token.add_bos


def test_stop_tokens_by_text_and_by_key() -> None:
    special = (("<|im_end|>", 3), ("<|eot_id|>", 1), ("<end>", 3), ("<|file_sep|>", 4), ("</s>", 1))
    tokenizer = Tokenizer.from_metadata(vocabularies.byte_level(special=special, eos_token_id=263))
    assert {tokenizer.token_text(token) for token in tokenizer.stop_ids} == {text for text, _ in special}
    assert tokenizer.is_control(262), "an end token is a control token whatever its type says"


def test_harmony_keeps_end_of_message() -> None:
    special = tuple((text, 3) for text in ("<|return|>", "<|call|>", "<|end|>", "<|channel|>"))
    tokenizer = Tokenizer.from_metadata(vocabularies.byte_level(special=special))
    assert {tokenizer.token_text(token) for token in tokenizer.stop_ids} == {"<|return|>", "<|call|>"}
    assert not tokenizer.is_control(tokenizer.encode("<|channel|>", add_special=False, parse_special=False)[0])


def test_control_tokens_are_no_text() -> None:
    ids = BYTE_LEVEL.encode("<|im_start|>hello<tool><|im_end|>", add_special=False, parse_special=True)
    assert BYTE_LEVEL.decode(ids) == "hello<tool>"
    assert BYTE_LEVEL.token_bytes(261) == b""


def test_bytes_without_a_token_separate_their_neighbours_and_are_lost() -> None:
    metadata = vocabularies.byte_level(merges=("a b",), special=())
    texts = list(metadata["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    texts[1] = "not a byte"
    tokenizer = Tokenizer.from_metadata(metadata | {"tokenizer.ggml.tokens": tuple(map(str, texts))})
    assert texts_of(tokenizer, "ab") == ["ab"]
    assert texts_of(tokenizer, "a\x01b") == ["a", "b"]


def test_a_merge_that_makes_no_token_falls_apart() -> None:
    metadata = vocabularies.byte_level(merges=("a b", "ab c"), special=())
    texts = tuple("gone" if text == "abc" else str(text) for text in metadata["tokenizer.ggml.tokens"])  # type: ignore[union-attr]
    tokenizer = Tokenizer.from_metadata(metadata | {"tokenizer.ggml.tokens": texts})
    assert texts_of(tokenizer, "abc") == ["a", "b", "c"]


def test_lone_surrogates_count_as_replacement_characters() -> None:
    for tokenizer in (BYTE_LEVEL, SENTENCE_PIECE):
        ids = tokenizer.encode("a\ud800", add_special=False, parse_special=True)
        assert tokenizer.decode(ids) == "a\ufffd"


@given(ANY_TEXT)
def test_decoding_gives_the_text_back(text: str) -> None:
    for tokenizer in (BYTE_LEVEL, SENTENCE_PIECE):
        ids = tokenizer.encode(text, add_special=True, parse_special=False)
        assert tokenizer.decode(ids) == (text.replace("▁", " ") if tokenizer is SENTENCE_PIECE else text)


@given(st.lists(st.integers(0, SENTENCE_PIECE.vocab_size - 1)))
def test_the_deltas_of_any_tokens_join_to_the_whole(ids: list[int]) -> None:
    for tokenizer in (BYTE_LEVEL, SENTENCE_PIECE):
        known = [token % tokenizer.vocab_size for token in ids]
        decoder = IncrementalDecoder(tokenizer, at_start=True)
        assert "".join([*map(decoder.push, known), decoder.finish()]) == tokenizer.decode(known)
        decoder = IncrementalDecoder(tokenizer)
        data = b"".join(map(tokenizer.token_bytes, known))
        assert "".join([*map(decoder.push, known), decoder.finish()]) == data.decode("utf-8", "replace")


@given(ANY_TEXT)
def test_valid_text_never_shows_half_a_character(text: str) -> None:
    decoder = IncrementalDecoder(BYTE_LEVEL)
    shown = ""
    for token in BYTE_LEVEL.encode(text, add_special=False, parse_special=False):
        shown += decoder.push(token)
        assert text.startswith(shown)
    assert decoder.finish() == ""
    assert shown == text


def test_invalid_bytes_show_as_soon_as_they_are_certain() -> None:
    decoder = IncrementalDecoder(BYTE_LEVEL)
    assert decoder.push(0xE4) == ""
    assert decoder.push(ord("a")) == "\ufffda"
    assert decoder.push(0xF0) == ""
    assert decoder.finish() == "\ufffd"
    assert decoder.push(ord("b")) == "b"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"tokenizer.ggml.model": "t5"}, UnsupportedModelError, "'t5'"),
        ({"tokenizer.ggml.model": ""}, UnsupportedModelError, "no tokenizer"),
        ({"tokenizer.ggml.pre": "new"}, UnsupportedModelError, "'new'"),
        ({"tokenizer.ggml.tokens": ()}, ModelFileError, "token list"),
        ({"tokenizer.ggml.tokens": ("a", "a")}, ModelFileError, "twice"),
        ({"tokenizer.ggml.token_type": (1,)}, ModelFileError, "at least"),
        ({"tokenizer.ggml.merges": 3}, ModelFileError, "merges"),
        ({"tokenizer.ggml.merges": ("ab",)}, ModelFileError, "merge .ab. is not a pair"),
    ],
)
def test_errors(change: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Tokenizer.from_metadata({**vocabularies.byte_level(), **change})  # type: ignore[dict-item]


def test_sentence_piece_errors() -> None:
    metadata = vocabularies.sentence_piece()
    with pytest.raises(ModelFileError, match="scores"):
        Tokenizer.from_metadata({key: value for key, value in metadata.items() if "scores" not in key})
    without_bytes = {
        **metadata,
        "tokenizer.ggml.tokens": tuple(f"{text}" for text in ("<unk>", "<s>", "</s>", "▁", "h")),
    }
    with pytest.raises(ModelFileError, match="byte 0x65"):
        Tokenizer.from_metadata(without_bytes).encode("he", add_special=False, parse_special=False)
    assert SENTENCE_PIECE.token_bytes(3 + 0x41) == b"A"
    with pytest.raises(IndexError):
        SENTENCE_PIECE.token_bytes(-1)
