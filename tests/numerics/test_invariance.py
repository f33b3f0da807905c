"""The same logits, bit for bit, alone or among others: the first promise, on every kernel set that runs here."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest

from numerics.batch_driver import Played, Script, open_tiny, play, play_alone, random_scripts
from numerics.mixed_models import MODELS
from tiny_models import TinyModel, tiny_tensors
from tokenmill import _native
from tokenmill.models import plan_model
from tokenmill.weights.pack import load_weights
from tokenmill.weights.progress import SilentProgress
from tokenmill.weights.read_gguf import read_gguf

USABLE_SETS = [entry["name"] for entry in _native.kernel_sets() if entry["usable"]]

LONG = (600, 257, 513, 300)
COUNT = 32
PAGES = 200

# (threads, prefill chunk): one and two threads with every chunk, three, and more threads than most batches have rows.
WHOLE = 10**6
WAYS = [(1, 64), (2, 1), (2, 7), (2, 64), (2, WHOLE), (3, 64), (40, 64)]


@functools.cache
def scripts_of(name: str) -> list[Script]:
    return random_scripts(COUNT, MODELS[name].vocab, LONG)


@functools.cache
def alone(name: str) -> list[Played]:
    """Each script alone, prompt in one piece, on the reference set with one thread."""
    model = open_tiny(MODELS[name], "reference", 1)
    model.allocate_kv(PAGES)
    return [play_alone(model, script, PAGES) for script in scripts_of(name)]


@pytest.mark.parametrize(("threads", "chunk"), WAYS)
@pytest.mark.parametrize("kernel_set", USABLE_SETS)
@pytest.mark.parametrize("name", MODELS)
def test_32_mixed_sequences_equal_each_alone(name: str, kernel_set: str, threads: int, chunk: int) -> None:
    model = open_tiny(MODELS[name], kernel_set, threads)
    model.allocate_kv(PAGES)
    together = play(model, scripts_of(name), chunk=chunk, pages=PAGES, seed=threads * 1000 + chunk)
    assert together == alone(name)


def test_logits_differ_where_they_should() -> None:
    """The digests above can fail: other tokens before give other logits."""
    played = alone("simple formats")
    assert not any(each.nonfinite for each in played)
    digests = [digest for each in played for digest in each.digests]
    assert len(set(digests)) > 0.9 * len(digests)


@pytest.mark.parametrize("kernel_set", USABLE_SETS)
def test_long_contexts_are_cut_the_same_way_for_any_number_of_threads(kernel_set: str) -> None:
    """One decode row over many blocks: several threads take blocks of one head."""
    model_shape = dataclasses.replace(MODELS["simple formats"], windows=(0, 1000), context=4096)
    script = Script(np.random.default_rng(3).integers(0, 300, 1300, dtype=np.int32), prompt=1292)
    expected: list[str] | None = None
    for threads in (1, 2, 5):
        model = open_tiny(model_shape, kernel_set, threads)
        model.allocate_kv(90)
        digests = play(model, [script], chunk=512, pages=90, seed=threads)[0].digests[-20:]
        expected = expected or digests
        assert digests == expected


def test_the_default_model_alone_and_among_others(default_model_path: Path) -> None:
    model_file = read_gguf(default_model_path)
    plan = plan_model(model_file)

    def opened(kernel_set: str, threads: int) -> _native.Model:
        model = _native.Model(dataclasses.asdict(plan), kernel_set=kernel_set, threads=threads, cpus=None)
        load_weights(model, model_file, plan, SilentProgress())
        model.allocate_kv(40)
        return model

    rng = np.random.default_rng(11)
    scripts = [
        Script(rng.integers(0, plan.vocab_size, length, dtype=np.int32), prompt=length - 3, start=length % 3)
        for length in (5, 18, 33, 64, 270)
    ]
    model = opened(_native.select_kernel_set(None), 1)
    expected = [play_alone(model, script, 40) for script in scripts]
    assert play_alone(opened("reference", 2), scripts[0], 40) == expected[0]
    model = opened(_native.select_kernel_set(None), 2)
    for chunk in (7, 64):
        assert play(model, scripts, chunk=chunk, pages=40, seed=chunk) == expected


POISON = 7


def poisoned_model() -> tuple[TinyModel, dict[str, bytes]]:
    """A model in which the embedding of one token becomes infinite, and its changed tensor."""
    model = TinyModel("llama", embedding_scale=100.0, tied=False, formats={"token_embd": "F32"})
    table = np.frombuffer(tiny_tensors(model)["token_embd.weight"].data, "<f4").reshape(model.vocab, -1).copy()
    table[POISON] = 3e38
    return model, {"token_embd.weight": table.tobytes()}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernel_set", USABLE_SETS)
def test_a_nonfinite_neighbour_changes_nothing(kernel_set: str, threads: int) -> None:
    shape, changed = poisoned_model()
    scripts = random_scripts(8, shape.vocab, (300,))
    clean = [Script(np.where(each.tokens == POISON, 8, each.tokens), each.prompt, each.start) for each in scripts]
    bad = {2, 5}
    mixed = list(clean)
    for number in bad:
        tokens = np.full(40, 20, np.int32)
        tokens[11] = POISON
        mixed[number] = Script(tokens, 30, start=1)
    model = open_tiny(shape, kernel_set, threads, changed)
    model.allocate_kv(60)
    expected = [play_alone(model, script, 60) for script in clean]
    # Twice: the second round uses pages in which infinities have been.
    for _ in range(2):
        got = play(model, mixed, chunk=7, pages=60)
        for number, (one, other) in enumerate(zip(got, expected, strict=True)):
            if number in bad:
                assert one.nonfinite
            else:
                assert one == other
                assert not one.nonfinite


@pytest.mark.parametrize("kernel_set", USABLE_SETS)
def test_drawn_tokens_do_not_depend_on_neighbours_or_threads(kernel_set: str) -> None:
    shape = MODELS["simple formats"]
    prompts = [np.random.default_rng(seed).integers(0, shape.vocab, 5 + seed, dtype=np.int32) for seed in range(6)]
    draws = []
    for threads, together in ((1, False), (2, True)):
        model = open_tiny(shape, kernel_set, threads)
        model.allocate_kv(16)
        groups = [list(range(6))] if together else [[number] for number in range(6)]
        tokens = [draw(model, prompts, numbers) for numbers in groups]
        draws.append([token for group in tokens for token in group])
    assert draws[0] == draws[1]


def draw(model: _native.Model, prompts: list[np.ndarray], numbers: list[int]) -> list[int]:
    chosen = [prompts[number] for number in numbers]
    ends = np.cumsum([0, *(len(each) for each in chosen)], dtype=np.int32)
    samplers = [
        _native.SamplerConfig(
            temperature=1.0, top_k=50, top_p=0.95, min_p=0.01, repetition_penalty=1.1, presence_penalty=0.1,
            frequency_penalty=0.1, logit_bias=[(3, 0.5)], seed=number, logprobs=2,
        )
        for number in numbers
    ]  # fmt: skip
    result = model.step(
        np.concatenate(chosen),
        ends,
        np.zeros(len(chosen), np.int32),
        np.arange(len(chosen), dtype=np.int32),
        np.arange(len(chosen) + 1, dtype=np.int32),
        ends[1:] - np.int32(1),
        samplers,
        [(each, len(each)) for each in chosen],
    )
    assert all(len(ids) == 2 for ids in result.top_ids)
    return [int(token) for token in result.token_ids]
