"""Through the whole engine: whatever the scheduler does with a sequence, its tokens are those it has alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiny_models import TinyModel, write_gguf
from tokenmill.engine.engine import Engine
from tokenmill.engine.options import EngineOptions
from tokenmill.engine.step_report import StepReport
from tokenmill.scheduling.recording import replay
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, SamplingParams, TokenEvent

CONTEXT = 512
PAGE_BYTES = 16 * 2 * 2 * 2 * 16 * 2  # tokens, K and V, layers, heads, head_dim, fp16: of the tiny model


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = TinyModel("llama", default_format="Q4_0", tied=False)
    return write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", model)


def mixed_requests(count: int) -> list[GenerationRequest]:
    """Lengths from one token to most of the context, three shared beginnings, every kind of sampling and priority."""
    rng = random.Random(9)
    beginnings: list[list[int]] = [
        [],
        [rng.randrange(250) for _ in range(40)],
        [rng.randrange(250) for _ in range(200)],
    ]
    samplings = (
        {"temperature": 0.0},
        {"temperature": 0.8, "top_k": 20},
        {"temperature": 1.0, "presence_penalty": 0.5, "repetition_penalty": 1.1},
    )
    requests = []
    for i in range(count):
        prompt = beginnings[i % 3] + [rng.randrange(250) for _ in range(rng.choice([1, 5, 16, 33, 120]))]
        requests.append(
            GenerationRequest(
                tuple(prompt),
                SamplingParams(seed=i, **samplings[i % len(samplings)]),  # type: ignore[arg-type]
                1 if i % 11 == 5 else rng.choice([100, 150, 180]),
                ignore_eos=True,
                priority=rng.choice([-1, 0, 0, 2]),
            )
        )
    return requests


def assert_set(event: threading.Event) -> None:
    assert event.wait(30)


def tokens(events: list[TokenEvent]) -> list[int | None]:
    return [event.token_id for event in events]


@pytest.fixture(scope="module")
def alone(model_path: Path) -> list[list[int | None]]:
    """Each request alone, one after the other, nothing cached."""
    options = EngineOptions(context_length=CONTEXT, max_sequences=1, prefix_cache=False, threads=1)
    with Engine.load(model_path, options) as engine:
        return [tokens(list(engine.submit(request))) for request in mixed_requests(48)]


@pytest.fixture(params=[None, 0.001], ids=["automatic", "tight"])
def recorded(
    model_path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Engine, EngineOptions, Path]]:
    """32 at once in pages for eight full contexts: sequences are pushed out. A tight target makes chunks small."""
    options = EngineOptions(
        context_length=CONTEXT,
        max_sequences=32,
        prefill_tokens=512 if request.param is None else 48,
        queue_limit=64,
        kv_bytes=240 * PAGE_BYTES,
        threads=2,
        itl_target_s=request.param,
        record_path=tmp_path / "run.jsonl",
    )
    with Engine.load(model_path, options) as engine:
        yield engine, options, tmp_path / "run.jsonl"


def test_the_same_tokens_at_batch_32_with_hits_and_preemption(
    recorded: tuple[Engine, EngineOptions, Path], alone: list[list[int | None]]
) -> None:
    engine, engine_options, record = recorded
    reports: list[StepReport] = []
    submitted = threading.Event()
    engine.observe_steps(reports.append)
    engine.observe_steps(lambda _: assert_set(submitted))  # the second step begins when all are there
    cancelled = [engine.submit(request) for request in mixed_requests(6)]
    generations = [engine.submit(request) for request in mixed_requests(48)]
    for generation in cancelled:
        generation.cancel()
    submitted.set()
    events = [list(generation) for generation in generations]
    assert [tokens(each) for each in events] == alone
    assert all(each[-1].finish_reason is FinishReason.LENGTH for each in events)
    again = [list(engine.submit(request)) for request in mixed_requests(48)[:12]]
    assert [tokens(each) for each in again] == alone[:12]
    assert any(each[0].cached_prompt_tokens >= 192 for each in again)
    state = engine.state
    assert state.cached_prompt_tokens > 0
    assert state.preemptions > 0
    assert (state.running, state.waiting, state.free_pages) == (0, 0, state.page_count)
    if engine_options.itl_target_s is None:
        assert max(report.batch_size for report in reports) >= 28
    assert sum(report.output_tokens for report in reports) >= sum(map(len, alone))
    assert sum(len(report.queue_seconds) for report in reports) >= 60
    engine.close()
    with record.open(encoding="utf-8") as lines:
        plans = list(replay(lines))
    assert len([made for made, _ in plans if made]) == len(reports)
    assert all(recorded_plan == made for recorded_plan, made in plans)


def test_a_record_that_cannot_be_made_is_told_before_anything_runs(model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "there.jsonl").touch()
    options = EngineOptions(context_length=CONTEXT, max_sequences=1, record_path=tmp_path / "there.jsonl")
    with pytest.raises(Exception, match="cannot be made: File exists"):
        Engine.load(model_path, options)
