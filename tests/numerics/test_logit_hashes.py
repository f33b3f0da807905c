"""Logits over real text have the committed hashes of the reference set: on every set that runs here, for every weight
format, any number of threads, any chunks, alone and among others, through the first blocks of attention and far beyond.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from numerics import logit_hashes
from numerics.batch_driver import Script, open_tiny
from numerics.logit_hashes import LONG, LONG_POSITIONS, UNIFORM, golden_of, neighbours, pages_of, text_hash, text_script
from tiny_models import TinyModel
from tokenmill import _native

USABLE_SETS = [entry["name"] for entry in _native.kernel_sets() if entry["usable"]]
FAST_SETS = [name for name in USABLE_SETS if name != "reference"]

# (threads, chunk, among others): the chunks alone and among 31 others, from one thread to more than a step has rows.
WAYS = [(1, 512, False), (1, 1, False), (2, 7, False), (2, 64, False), (2, 1, True), (2, 7, True), (3, 64, True)]
WAYS += [(2, 512, True), (33, 7, False)]


def tiny_hash(model: TinyModel, kernel_set: str, script: Script, threads: int, chunk: int, among: bool) -> str:
    native = open_tiny(model, kernel_set, threads)
    others = neighbours(script, model.vocab, chunk) if among else []
    native.allocate_kv(pages_of([script, *others]))
    return text_hash(native, script, others, chunk)


@pytest.mark.parametrize("name", [*UNIFORM, "long"])
def test_the_goldens_are_of_these_weights_and_this_text(name: str) -> None:
    """Fails where NumPy draws other random numbers: then the goldens say nothing, and have to be made again."""
    goldens = golden_of("tiny")
    assert goldens["text_sha256"] == logit_hashes.sha256_of(logit_hashes.TEXT)
    model = LONG if name == "long" else UNIFORM[name]
    assert goldens["models"][name]["weights_sha256"] == logit_hashes.weights_hash(model)


@pytest.mark.parametrize("name", UNIFORM)
def test_the_reference_still_means_what_it_meant(name: str) -> None:
    expected = golden_of("tiny")["models"][name]
    assert expected["positions"] >= 600
    assert tiny_hash(UNIFORM[name], "reference", text_script(), 2, 512, False) == expected["logits_sha256"]


@pytest.mark.parametrize(("threads", "chunk", "among"), WAYS)
@pytest.mark.parametrize("kernel_set", FAST_SETS)
@pytest.mark.parametrize("name", UNIFORM)
def test_every_format_on_every_set(name: str, kernel_set: str, threads: int, chunk: int, among: bool) -> None:
    expected = golden_of("tiny")["models"][name]["logits_sha256"]
    assert tiny_hash(UNIFORM[name], kernel_set, text_script(), threads, chunk, among) == expected


@pytest.mark.parametrize(("threads", "chunk", "among"), [(2, 1, False), (1, 7, False), (3, 64, True), (2, 512, True)])
@pytest.mark.parametrize("kernel_set", USABLE_SETS)
def test_contexts_past_4096(kernel_set: str, threads: int, chunk: int, among: bool) -> None:
    expected = golden_of("tiny")["models"]["long"]
    assert expected["positions"] > 4096
    got = tiny_hash(LONG, kernel_set, text_script(LONG_POSITIONS), threads, chunk, among)
    assert got == expected["logits_sha256"]


def real_hash(path: Path, kernel_set: str, threads: int, chunk: int, among: bool) -> str:
    golden = golden_of(path.stem)
    with path.open("rb") as stream:
        assert hashlib.file_digest(stream, "sha256").hexdigest() == golden["model_sha256"]
    script = logit_hashes.real_script(path.stem)
    assert logit_hashes.sha256_of(script.tokens.tobytes()) == golden["tokens_sha256"]
    assert len(script.tokens) == golden["positions"] >= 600
    others = neighbours(script, 49152, chunk) if among else []
    model = logit_hashes.open_file(path, kernel_set, threads, pages_of([script, *others]))
    return text_hash(model, script, others, chunk)


@pytest.mark.parametrize("kernel_set", FAST_SETS)
def test_the_default_model(default_model_path: Path, kernel_set: str) -> None:
    expected = golden_of(default_model_path.stem)["logits_sha256"]
    assert real_hash(default_model_path, kernel_set, 2, 512, False) == expected
    assert real_hash(default_model_path, kernel_set, 2, 64, True) == expected


@pytest.mark.parametrize("kernel_set", FAST_SETS)
def test_a_mixed_k_quantized_model(qwen_model_path: Path, kernel_set: str) -> None:
    expected = golden_of(qwen_model_path.stem)["logits_sha256"]
    assert real_hash(qwen_model_path, kernel_set, 2, 512, False) == expected


@pytest.mark.scheduled  # the reference set takes minutes for each
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("model", ["default_model_path", "qwen_model_path"])
def test_the_reference_on_real_models(model: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(model)
    assert real_hash(path, "reference", 2, 512, False) == golden_of(path.stem)["logits_sha256"]


@pytest.mark.scheduled
@pytest.mark.parametrize(("threads", "chunk", "among"), WAYS)
@pytest.mark.parametrize("kernel_set", FAST_SETS)
@pytest.mark.parametrize("model", ["default_model_path", "qwen_model_path"])
def test_real_models_in_every_way(
    model: str, kernel_set: str, threads: int, chunk: int, among: bool, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(model)
    assert real_hash(path, kernel_set, threads, chunk, among) == golden_of(path.stem)["logits_sha256"]
