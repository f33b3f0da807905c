"""Splitting into words: nothing lost, categories from our own tables, unknown kinds refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.text.pretokenizers import PRE_TOKENIZERS, find_pre_tokenizer
from tokenmill.text.unicode_classes import WHITE_SPACE, unicode_class
from tokenmill.vocabulary.errors import UnsupportedModelError

SPLITTERS = {kind.patterns: kind.compile() for kind in PRE_TOKENIZERS.values()}


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_words_join_to_the_text(text: str) -> None:
    for splitter in SPLITTERS.values():
        words = splitter.split(text)
        assert "".join(words) == text
        assert all(words)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("gpt-2", "Hello  world's 12ab", ["Hello", " ", " world", "'s", " 12", "ab"]),
        ("smollm", "in 2024!", ["in", " ", "2", "0", "2", "4", "!"]),
        ("llama-bpe", "x1234 'LL\r\n\n y", ["x", "123", "4", " '", "LL", "\r\n\n", " y"]),
        ("qwen2", "(x):\n  y", ["(x", "):\n", " ", " y"]),
        ("deepseek-llm", "a  ", ["a", "  "]),
        ("falcon", "12345", ["123", "45"]),
        ("", "12345", ["123", "45"]),
    ],
)
def test_known_splits(kind: str, text: str, words: list[str]) -> None:
    assert find_pre_tokenizer(kind).compile().split(text) == words


def test_unknown_kind_is_named() -> None:
    with pytest.raises(UnsupportedModelError, match="'shiny-new'"):
        find_pre_tokenizer("shiny-new")


def test_unicode_classes() -> None:
    for character, letter in zip(
        "aéЖ中\u02b01½Ⅷ!—$€\u0301 \u2028\t\u200d\ue000\u0378", "LLLLLNNNPPSSMZZCCCU", strict=True
    ):
        assert unicode_class(ord(character)) == letter, character
    assert unicode_class(0x10FFFF) == "U"
    assert "\u3000" in WHITE_SPACE
    assert "\x1c" not in WHITE_SPACE
