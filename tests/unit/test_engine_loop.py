from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from scripted_runner import VOCAB, ScriptedRunner, expected_output
from tokenmill.engine.check_request import check_request
from tokenmill.engine.engine_loop import EngineLoop
from tokenmill.engine.step_report import StepReport
from tokenmill.scheduling.batch_plan import SequenceStep
from tokenmill.scheduling.limits import SchedulerLimits
from tokenmill.scheduling.scheduler import Scheduler
from tokenmill.vocabulary.errors import OverloadedError, RequestError, UnavailableError
from tokenmill.vocabulary.generation import FinishReason, GenerationRequest, SamplingParams

LIMITS = SchedulerLimits(context_length=2048, page_count=256, max_sequences=4, step_tokens=16, queue_limit=4)


def request(prompt: list[int], max_tokens: int = 5) -> GenerationRequest:
    return GenerationRequest(tuple(prompt), SamplingParams(), max_tokens)


@pytest.fixture
def runner() -> ScriptedRunner:
    return ScriptedRunner(256, step_s=0.001)


@pytest.fixture
def loop(runner: ScriptedRunner) -> Iterator[EngineLoop]:
    loop = EngineLoop(Scheduler(LIMITS), runner)
    yield loop
    loop.close()


def wait_until_idle(loop: EngineLoop) -> None:
    deadline = time.monotonic() + 5
    while loop.state.running + loop.state.waiting or loop.state.free_pages != loop.state.page_count:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_thread_reads_its_tokens(loop: EngineLoop) -> None:
    events = list(loop.submit(request([1, 2, 3])))
    assert [event.token_id for event in events] == expected_output([1, 2, 3], 5)
    assert [event.finish_reason for event in events] == [None] * 4 + [FinishReason.LENGTH]
    assert [event.time_s for event in events] == sorted(event.time_s for event in events)


def test_many_threads_at_once_get_their_own_tokens(loop: EngineLoop) -> None:
    seen: dict[int, list[int | None]] = {}

    def client(i: int) -> None:
        while i not in seen:
            try:
                seen[i] = [event.token_id for event in loop.submit(request([i] * 9, 20))]
            except OverloadedError:
                time.sleep(0.005)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {i: expected_output([i] * 9, 20) for i in range(16)}


def test_an_event_loop_reads_many_generations(loop: EngineLoop) -> None:
    async def read(i: int) -> list[int | None]:
        return [event.token_id async for event in loop.submit(request([i], 8))]

    async def main() -> list[list[int | None]]:
        return await asyncio.gather(*(read(i) for i in range(8)))

    assert asyncio.run(main()) == [expected_output([i], 8) for i in range(8)]


def test_cancel_frees_the_sequence_and_ends_the_iteration(loop: EngineLoop) -> None:
    generation = loop.submit(request([1], 2000))
    assert next(generation).token_id is not None
    generation.cancel()
    generation.cancel()
    assert list(generation)[-1].finish_reason is FinishReason.CANCELLED
    wait_until_idle(loop)


def test_a_full_queue_is_refused_and_recovers(loop: EngineLoop) -> None:
    held = [loop.submit(request([1], 2000)) for _ in range(8)]
    with pytest.raises(OverloadedError):
        loop.submit(request([1], 2000))
    for generation in held:
        generation.cancel()
    assert len(list(loop.submit(request([1])))) == 5


def test_close_ends_what_runs_with_a_reason_of_its_own(runner: ScriptedRunner) -> None:
    loop = EngineLoop(Scheduler(LIMITS), runner)
    generation = loop.submit(request([1], 2000))
    loop.close()
    last = list(generation)[-1]
    assert (last.finish_reason, last.error) == (FinishReason.SHUTDOWN, "")
    with pytest.raises(UnavailableError, match="closed"):
        loop.submit(request([1]))


def test_a_failing_runner_ends_everything_and_is_told() -> None:
    def explode(step: SequenceStep) -> str:
        if step.position > 10:
            raise MemoryError("no memory for the step")
        return ""

    loop = EngineLoop(Scheduler(LIMITS), ScriptedRunner(256, fail_when=explode))
    generations = [loop.submit(request([i], 2000)) for i in range(6)]
    for generation in generations:
        last = list(generation)[-1]
        assert last.finish_reason is FinishReason.ERROR
        assert "no memory for the step" in last.error
    assert "no memory for the step" in loop.failure
    with pytest.raises(UnavailableError, match="no memory"):
        loop.submit(request([1]))
    loop.close()


def test_steps_are_reported(runner: ScriptedRunner) -> None:
    reports: list[StepReport] = []
    loop = EngineLoop(Scheduler(LIMITS), runner, on_step=reports.append)
    list(loop.submit(request(list(range(20)), 3)))
    loop.close()
    assert [(r.prefill_tokens, r.decode_tokens) for r in reports] == [(16, 0), (4, 0), (0, 1), (0, 1)]
    assert all(r.seconds >= 0.001 and r.phase_seconds["matmul"] == 0.5 for r in reports)
    assert reports[-1].state.free_pages == 256


def test_an_idle_loop_burns_no_cpu(loop: EngineLoop) -> None:
    list(loop.submit(request([1])))
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05


def test_a_reader_whose_event_loop_is_gone_does_not_hurt(loop: EngineLoop) -> None:
    generation = loop.submit(request([1], 50))

    async def read_one() -> None:
        await anext(generation)

    asyncio.run(read_one())
    assert len(list(loop.submit(request([2])))) == 5


@pytest.mark.parametrize(
    ("sampling", "parameter"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 2.0}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"presence_penalty": float("inf")}, "presence_penalty"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"logprobs": 21}, "logprobs"),
        ({"logit_bias": {VOCAB: 1.0}}, "logit_bias"),
        ({"logit_bias": {0: float("nan")}}, "logit_bias"),
    ],
)
def test_sampling_out_of_range_is_refused_by_name(sampling: dict[str, float], parameter: str) -> None:
    with pytest.raises(RequestError, match=parameter) as caught:
        check_request(GenerationRequest((1,), SamplingParams(**sampling)), VOCAB)  # type: ignore[arg-type]
    assert caught.value.parameter == parameter


def test_token_ids_and_stop_strings_are_checked() -> None:
    with pytest.raises(RequestError, match="token ids outside"):
        check_request(GenerationRequest((1, VOCAB), SamplingParams()), VOCAB)
    with pytest.raises(RequestError, match="stop string"):
        check_request(GenerationRequest((1,), SamplingParams(), stop_strings=("",)), VOCAB)
