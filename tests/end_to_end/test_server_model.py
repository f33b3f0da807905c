"""The whole way with a real model: OpenAI's client, HTTP, scheduler, native code."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from server_thread import ServerThread
from tokenmill.engine.engine import Engine
from tokenmill.engine.options import EngineOptions
from tokenmill.engine.text_stream import TextStream
from tokenmill.vocabulary.errors import CapacityError, RequestError
from tokenmill.vocabulary.generation import GenerationRequest, SamplingParams

OPTIONS = EngineOptions(context_length=1024, max_sequences=8, prefill_tokens=64, queue_limit=8, kv_bytes=400 * 2**20)
QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about a water mill.",
    "List three fruits.",
    "Say hello in German.",
    "What is 2 + 2?",
    "Who wrote Hamlet?",
)


@pytest.fixture(scope="module")
def engine(default_model_path: Path) -> Iterator[Engine]:
    with Engine.load(default_model_path, OPTIONS) as engine:
        yield engine


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[ServerThread]:
    with ServerThread(lambda _: engine) as thread:
        yield thread.wait_ready()


def chat(client: openai.OpenAI, question: str, **options: object) -> str:
    answer = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": question}],
        max_tokens=24,
        **options,  # type: ignore[call-overload]
    )
    return str(answer.choices[0].message.content)


def complete(client: openai.OpenAI, prompt: str, **options: object) -> str:
    model = client.models.list().data[0].id
    answer = client.completions.create(model=model, prompt=prompt, max_tokens=8, **options)  # type: ignore[call-overload]
    return str(answer.choices[0].text)


def test_it_knows_the_capital_of_france(server: ServerThread) -> None:
    with server.client() as client:
        assert complete(client, "The capital of France is", temperature=0).startswith(" Paris")


def test_the_same_text_alone_and_in_company_streamed_or_not(server: ServerThread) -> None:
    with server.client() as client:
        alone = [chat(client, question, temperature=0) for question in QUESTIONS]
        model = client.models.list().data[0].id

    async def stream(client: openai.AsyncOpenAI, question: str) -> str:
        chunks = await client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question}],
            max_tokens=24,
            temperature=0,
            stream=True,
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    async def together() -> list[str]:
        async with server.async_client() as client:
            return await asyncio.gather(*(stream(client, question) for question in QUESTIONS))

    assert asyncio.run(together()) == alone
    server.wait_idle()


def test_the_same_seed_gives_the_same_text(server: ServerThread) -> None:
    with server.client() as client:
        first = chat(client, QUESTIONS[1], seed=7)
        assert chat(client, QUESTIONS[1], seed=7) == first
        assert chat(client, QUESTIONS[1], seed=8) != first


def test_penalties_bias_and_logprobs_reach_native_code(server: ServerThread, engine: Engine) -> None:
    with server.client() as client:
        paris = engine.tokenizer.encode(" Paris", add_special=False, parse_special=False)
        assert len(paris) == 1
        banned = complete(client, "The capital of France is", temperature=0, logit_bias={str(paris[0]): -100})
        assert not banned.startswith(" Paris")
        repeated = {"temperature": 0, "frequency_penalty": 2.0, "presence_penalty": 2.0}
        assert chat(client, QUESTIONS[2], **repeated) != chat(client, QUESTIONS[2], temperature=0)
        answer = client.completions.create(
            model=client.models.list().data[0].id,
            prompt="The capital of France is",
            max_tokens=3,
            temperature=0,
            logprobs=5,
        )
        logprobs = answer.choices[0].logprobs
        assert logprobs is not None
        for chosen, top in zip(logprobs.token_logprobs or [], logprobs.top_logprobs or [], strict=True):
            assert chosen == max(top.values())
            assert chosen <= 0


def test_a_long_prompt_in_chunks_and_one_that_is_too_long(server: ServerThread) -> None:
    text = "The mill turns slowly beside the river. " * 70
    with server.client() as client:
        model = client.models.list().data[0].id
        long = client.completions.create(model=model, prompt=text, max_tokens=4, temperature=0)
        assert long.usage is not None
        assert long.usage.prompt_tokens > 500
        with pytest.raises(openai.BadRequestError, match=r"the prompt has \d+ tokens, but the context holds 1024"):
            client.completions.create(model=model, prompt=text * 3, max_tokens=4)


def test_preemption_does_not_change_a_text(default_model_path: Path, engine: Engine) -> None:
    request = [
        GenerationRequest(
            tuple(engine.tokenizer.encode(question, add_special=True, parse_special=False)),
            SamplingParams(seed=index),
            max_tokens=80,
            ignore_eos=True,
        )
        for index, question in enumerate(QUESTIONS[:4])
    ]
    expected = [[event.token_id for event in engine.submit(each)] for each in request]
    page_bytes = engine.info.kv_bytes // engine.info.kv_pages
    short = EngineOptions(context_length=256, max_sequences=4, prefill_tokens=64, kv_bytes=17 * page_bytes)
    with Engine.load(default_model_path, short) as small:
        running = [small.submit(each) for each in request]
        assert [[event.token_id for event in generation] for generation in running] == expected
        assert small.state.preemptions > 0
        assert small.state.free_pages == small.state.page_count


def test_chunks_do_not_change_a_text(default_model_path: Path, engine: Engine) -> None:
    prompt = tuple(engine.tokenizer.encode("The mill turns. " * 20, add_special=True, parse_special=False))
    request = GenerationRequest(prompt, SamplingParams(seed=3), max_tokens=20)
    expected = [event.token_id for event in engine.submit(request)]
    options = EngineOptions(context_length=256, max_sequences=1, prefill_tokens=7, threads=1)
    with Engine.load(default_model_path, options) as other:
        assert [event.token_id for event in other.submit(request)] == expected


def test_text_stops_at_the_models_own_stop_token(engine: Engine) -> None:
    ids = engine.encode_chat([{"role": "user", "content": QUESTIONS[4]}])
    request = GenerationRequest(tuple(ids), SamplingParams(temperature=0), max_tokens=50)
    text = TextStream(engine.submit(request), engine.tokenizer, at_start=True)
    assert "".join(delta.text for delta in text) == "The answer is 4."
    assert text.finish_reason == "stop"


def test_what_the_host_cannot_hold_is_refused_with_the_numbers(default_model_path: Path) -> None:
    with pytest.raises(CapacityError, match=r"needs .* bytes, but it may have 1,000,000"):
        Engine.load(default_model_path, EngineOptions(kv_bytes=1_000_000))
    with pytest.raises(RequestError, match="threads"):
        Engine.load(default_model_path, EngineOptions(threads=10_000))


SCRIPT = """
import sys
from pathlib import Path
from tokenmill.engine.engine import Engine
from tokenmill.engine.options import EngineOptions
from tokenmill.server.serve import Server
options = EngineOptions(context_length=1024, max_sequences=2, threads=1)
server = Server(lambda progress: Engine.load(Path(sys.argv[1]), options, progress=progress), port=0)
print(server.url, flush=True)
server.run()
"""


def test_sigterm_drains_and_exits_with_zero(default_model_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(default_model_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert httpx.get(f"{url}/health").status_code == 200
            while httpx.get(f"{url}/ready").status_code != 200:
                assert process.poll() is None
                time.sleep(0.05)
            with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
                model = client.models.list().data[0].id
                stream = client.completions.create(model=model, prompt="Once", max_tokens=60, stream=True, seed=1)
                next(stream)
                process.send_signal(signal.SIGTERM)
                while httpx.get(f"{url}/ready").json()["status"] == "ready":
                    time.sleep(0.01)
                with pytest.raises(openai.InternalServerError, match="draining"):
                    client.completions.create(model=model, prompt="Once", max_tokens=1)
                *_, last = stream
                assert last.choices[0].finish_reason in ("length", "stop")
            assert process.wait(20) == 0
        finally:
            process.kill()
