"""Token ids, token bytes and stop tokens equal to the reference tokenizer's."""

from __future__ import annotations

import gzip
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from reference_vocabularies import with_pre_tokenizer
from strings import Case

from tokenmill.text.pretokenizers import PRE_TOKENIZERS
from tokenmill.text.tokenizer import Tokenizer
from tokenmill.weights.read_gguf import read_gguf

FOLDER = Path(__file__).parent
DIGESTS: dict[str, str] = json.loads(gzip.decompress((FOLDER / "vocabularies.json.gz").read_bytes()))
NO_VECTORS = {"aquila", "baichuan", "gpt-neox"}
VOCABULARIES = [name for name in DIGESTS if " as " not in name]


def encode(tokenizer: Tokenizer, case: Case) -> list[int]:
    return tokenizer.encode(case.text, add_special=case.add_special, parse_special=case.parse_special)


def check_facts(tokenizer: Tokenizer, facts: dict[str, Any]) -> None:
    assert sorted(tokenizer.stop_ids) == facts["stop_ids"]
    digest = hashlib.sha256()
    for token in range(tokenizer.vocab_size):
        piece = tokenizer.token_bytes(token)
        digest.update(len(piece).to_bytes(4, "little") + piece)
    assert digest.hexdigest() == facts["pieces"]


def check_ids_of_model(path: Path, cases: list[Case], facts: dict[str, Any]) -> None:
    expected = json.loads(gzip.decompress((FOLDER / f"{path.stem}.json.gz").read_bytes()))
    assert len(cases) == len(expected) > 2000
    tokenizer = Tokenizer.from_metadata(read_gguf(path).metadata)
    for case, ids in zip(cases, expected, strict=True):
        assert encode(tokenizer, case) == ids, case
    check_facts(tokenizer, facts[path.stem])


def test_default_model(default_model_path: Path, cases: list[Case], facts: dict[str, Any]) -> None:
    check_ids_of_model(default_model_path, cases, facts)


def test_qwen_model(qwen_model_path: Path, cases: list[Case], facts: dict[str, Any]) -> None:
    check_ids_of_model(qwen_model_path, cases, facts)


@pytest.mark.parametrize("name", [name for name in VOCABULARIES if name not in NO_VECTORS])
def test_reference_vectors(name: str, references: Path) -> None:
    path = references / f"ggml-vocab-{name}.gguf"
    tokenizer = Tokenizer.from_metadata(read_gguf(path).metadata)
    texts = Path(f"{path}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text(encoding="utf-8").split("\n")[: len(texts)]
    assert len(lines) == len(texts) > 40
    for text, line in zip(texts, lines, strict=True):
        assert tokenizer.encode(text, add_special=False, parse_special=False) == [int(word) for word in line.split()]


def differences(tokenizer: Tokenizer, cases: list[Case], digests: str) -> list[Case]:
    assert len(digests) == 6 * len(cases)
    return [
        case
        for number, case in enumerate(cases)
        if hashlib.sha256(",".join(map(str, encode(tokenizer, case))).encode()).hexdigest()[:6]
        != digests[6 * number : 6 * number + 6]
    ]


@pytest.mark.parametrize("name", VOCABULARIES)
def test_reference_vocabulary(name: str, references: Path, cases: list[Case], facts: dict[str, Any]) -> None:
    tokenizer = Tokenizer.from_metadata(read_gguf(references / f"ggml-vocab-{name}.gguf").metadata)
    assert differences(tokenizer, cases, DIGESTS[name]) == []
    check_facts(tokenizer, facts[name])


@pytest.mark.parametrize("name", [name for name in DIGESTS if " as " in name])
def test_pre_tokenizer_kind(name: str, references: Path, cases: list[Case], tmp_path: Path) -> None:
    base, _, kind = name.partition(" as ")
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(with_pre_tokenizer((references / f"ggml-vocab-{base}.gguf").read_bytes(), kind))
    assert differences(Tokenizer.from_metadata(read_gguf(path).metadata), cases, DIGESTS[name]) == []


def test_every_kind_is_compared() -> None:
    """A name whose rules equal those of a compared name needs no comparison of its own."""
    compared = {name.partition(" as ")[2] for name in DIGESTS} | {"gpt-2", "llama-bpe", "qwen2", "command-r", "falcon"}
    rules = [PRE_TOKENIZERS[name] for name in compared if name in PRE_TOKENIZERS]
    assert [name for name, kind in PRE_TOKENIZERS.items() if kind not in rules] == []


LONG = 100_000
ADVERSARIAL = {
    "one letter": "a" * LONG,
    "spaces": " " * LONG,
    "spaces before a word": " " * LONG + "x",
    "newlines": "\n" * LONG,
    "spaces and newlines": " \n" * (LONG // 2),
    "digits": "1234567890" * (LONG // 10),
    "punctuation": "!?" * (LONG // 2),
    "two letters": "ab" * (LONG // 2),
    "apostrophes": "'s" * (LONG // 2),
    "combining accents": "e\u0301\u0308" * (LONG // 5),
    "emoji": "👩‍👩‍👧‍👦" * (LONG // 25),
    "unfinished special tokens": "<|im_" * (LONG // 5),
    "special tokens": "<|im_end|>" * (LONG // 10),
    "uppercase": "A" * LONG,
}


def check_long_texts(path: Path, prose: str, allowed_seconds: float = 1.0) -> None:
    """100 kB in well under a second of processor time, whatever they are (quadratic time would be minutes)."""
    tokenizer = Tokenizer.from_metadata(read_gguf(path).metadata)
    texts = ADVERSARIAL | {"prose": (prose * (1 + LONG // len(prose)))[:LONG]}
    for name, text in texts.items():
        started = time.process_time()
        ids = tokenizer.encode(text, add_special=False, parse_special=True)
        seconds = time.process_time() - started
        assert seconds < allowed_seconds, (name, seconds)
        if name != "special tokens":
            assert tokenizer.decode(ids) == text, name


def test_long_texts_in_the_default_model(default_model_path: Path, real_text: str) -> None:
    check_long_texts(default_model_path, real_text)


def test_long_texts_in_the_qwen_model(qwen_model_path: Path, real_text: str) -> None:
    check_long_texts(qwen_model_path, real_text)


@pytest.mark.parametrize("name", ["llama-spm", "deepseek-llm"])
def test_long_texts(name: str, references: Path, real_text: str) -> None:
    check_long_texts(references / f"ggml-vocab-{name}.gguf", real_text, allowed_seconds=3.0)
