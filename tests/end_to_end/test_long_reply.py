"""A reply with a long context beside chats, live: it must not spoil their inter-token latency."""

from __future__ import annotations

import random
import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest

from simulated_machine import percentile
from tokenmill.engine.engine import Engine
from tokenmill.engine.options import EngineOptions
from tokenmill.scheduling import decode_rows
from tokenmill.vocabulary.generation import GenerationRequest, SamplingParams

CHATS = 15
SECONDS = 6.0
ROUNDS = 4
LONG = 7000  # tokens of context; 160 MB of keys and values for each token of the reply


def gaps_of_chats(engine: Engine, seconds: float) -> list[float]:
    """Inter-token gaps of closed-loop chats with distinct prompts."""
    end = time.monotonic() + seconds
    gaps: list[float] = []

    def client(number: int) -> None:
        rng = random.Random(number)
        while time.monotonic() < end:
            prompt = tuple(rng.randrange(1000, 20_000) for _ in range(110))
            sampling = SamplingParams(temperature=0.0)
            times = [e.time_s for e in engine.submit(GenerationRequest(prompt, sampling, 64, ignore_eos=True))]
            gaps.extend(b - a for a, b in pairwise(times))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CHATS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return gaps


def beside_a_long_reply(engine: Engine) -> tuple[list[float], int]:
    """The gaps, and how many tokens the long reply had meanwhile. Its prompt is computed in the first round only."""
    rng = random.Random(99)
    prompt = tuple(rng.randrange(1000, 20_000) for _ in range(LONG))
    reply = engine.submit(GenerationRequest(prompt, SamplingParams(temperature=0.0), None, ignore_eos=True))
    next(reply)
    gaps = gaps_of_chats(engine, SECONDS)
    reply.cancel()
    return gaps, sum(event.token_id is not None for event in reply)


@pytest.mark.scheduled
def test_a_long_reply_leaves_the_tail_of_its_neighbours_alone(
    default_model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaps: dict[str, list[float]] = {"alone": [], "beside": [], "unlimited": []}
    tokens = {"beside": 0, "unlimited": 0}
    options = EngineOptions(context_length=8192, max_sequences=16, kv_bytes=600 * 2**20)
    with Engine.load(default_model_path, options) as engine:
        gaps_of_chats(engine, SECONDS)  # the cost model learns
        for _ in range(ROUNDS):  # in alternation, so that a busy machine is busy for all of them
            gaps["alone"] += gaps_of_chats(engine, SECONDS)
            for name, share in (("beside", decode_rows._COSTLY_SHARE), ("unlimited", 1e9)):  # 1e9: no row is costly
                with monkeypatch.context() as patch:
                    patch.setattr(decode_rows, "_COSTLY_SHARE", share)
                    more, count = beside_a_long_reply(engine)
                gaps[name] += more
                tokens[name] += count
    for name, each in gaps.items():
        print(f"{name}: {len(each)} gaps, mean {fmean(each):.4f} s, p99 {percentile(each, 99):.4f} s", tokens.get(name))
    assert percentile(gaps["beside"], 99) < 1.2 * percentile(gaps["alone"], 99)
    assert tokens["unlimited"] > 1.5 * tokens["beside"] > 0
