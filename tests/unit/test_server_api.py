"""The API's shapes over a scripted engine, with OpenAI's own client and with bare HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from scripted_engine import expected_text, scripted_engine
from server_thread import ServerThread
from tokenmill.engine.engine import Engine

CHAT = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return scripted_engine()


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[ServerThread]:
    with ServerThread(lambda _: engine) as thread:
        yield thread.wait_ready()


@pytest.fixture(scope="module")
def client(server: ServerThread) -> Iterator[openai.OpenAI]:
    with server.client() as client:
        yield client


def post(server: ServerThread, path: str, body: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{server.url}{path}", content=content, headers={"content-type": "application/json"})


def frames(response: httpx.Response) -> list[Any]:
    blocks = [block for block in response.text.split("\n\n") if block and not block.startswith(":")]
    assert blocks[-1] == "data: [DONE]"
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-1]]


def test_chat(engine: Engine, client: openai.OpenAI) -> None:
    prompt = engine.encode_chat(CHAT)
    answer = client.chat.completions.create(model="scripted", messages=CHAT, seed=3, max_tokens=20)  # type: ignore[arg-type]
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.content == expected_text(engine, prompt, 20, 3)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].logprobs is None
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), 20)
    assert answer.usage.total_tokens == len(prompt) + 20


def test_chat_stream_equals_whole(engine: Engine, client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="scripted",
            messages=CHAT,  # type: ignore[arg-type]
            seed=3,
            max_completion_tokens=20,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].choices[0].delta.content == ""
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 20
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-2].choices[0].finish_reason == "length"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == expected_text(engine, engine.encode_chat(CHAT), 20, 3)
    assert len({chunk.id for chunk in chunks}) == 1


def test_completions_of_text_ids_and_lists(engine: Engine, client: openai.OpenAI) -> None:
    ids = engine.tokenizer.encode("abc", add_special=True, parse_special=True)
    text = expected_text(engine, ids, 16, 5)
    assert client.completions.create(model="scripted", prompt="abc", seed=5).choices[0].text == text
    assert client.completions.create(model="scripted", prompt=ids, seed=5).choices[0].text == text
    several = client.completions.create(model="scripted", prompt=["abc", "xy", "abc"], n=2, seed=5)
    assert [choice.index for choice in several.choices] == list(range(6))
    assert several.choices[0].text == several.choices[4].text == text
    assert several.choices[1].text == expected_text(engine, ids, 16, 6)
    assert several.usage is not None
    assert (several.usage.prompt_tokens, several.usage.completion_tokens) == (3 + 2 + 3, 6 * 16)


def test_completion_stream_of_several_choices(engine: Engine, client: openai.OpenAI) -> None:
    texts = ["", "", ""]
    for chunk in client.completions.create(model="scripted", prompt="abc", seed=5, n=3, max_tokens=9, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    ids = engine.tokenizer.encode("abc", add_special=True, parse_special=True)
    assert texts == [expected_text(engine, ids, 9, 5 + i) for i in range(3)]


def test_stop_strings(engine: Engine, client: openai.OpenAI) -> None:
    whole = expected_text(engine, engine.encode_chat(CHAT), 40, 1)
    answer = client.chat.completions.create(model="scripted", messages=CHAT, seed=1, stop=[whole[10:13]])  # type: ignore[arg-type]
    assert answer.choices[0].message.content == whole[: whole.index(whole[10:13])]
    assert answer.choices[0].finish_reason == "stop"


def test_chat_logprobs(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="scripted",
        messages=CHAT,  # type: ignore[arg-type]
        max_tokens=4,
        seed=2,
        logprobs=True,
        top_logprobs=2,
    )
    assert answer.choices[0].logprobs is not None
    content = answer.choices[0].logprobs.content
    assert content is not None
    assert "".join(token.token for token in content) == answer.choices[0].message.content
    assert [len(token.top_logprobs) for token in content] == [2] * 4
    assert content[0].bytes == list(content[0].token.encode())
    assert content[0].logprob == -0.5


def test_completion_logprobs(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="scripted", prompt="abc", max_tokens=4, logprobs=2, seed=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.text_offset == [0, 1, 2, 3]
    assert "".join(logprobs.tokens or []) == answer.choices[0].text
    assert all(len(top) == 2 for top in logprobs.top_logprobs or [])
    pieces = list(
        client.completions.create(model="scripted", prompt="abc", max_tokens=4, logprobs=0, seed=2, stream=True)
    )
    offsets = [o for p in pieces if p.choices[0].logprobs for o in p.choices[0].logprobs.text_offset or []]
    assert offsets == [0, 1, 2, 3]


def test_usage_tells_what_the_prefix_cache_held(client: openai.OpenAI) -> None:
    prompt = "a beginning of its own that fills two pages and more"
    for cached in (0, 48):
        usage = client.completions.create(model="scripted", prompt=prompt, max_tokens=2).usage
        assert usage is not None
        assert usage.prompt_tokens == len(prompt)
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == cached


def test_async_clients_at_once(engine: Engine, server: ServerThread) -> None:
    prompts = [f"{i}" for i in range(8)]

    async def ask(client: openai.AsyncOpenAI, prompt: str) -> str:
        stream = await client.completions.create(model="scripted", prompt=prompt, seed=2, max_tokens=30, stream=True)
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def ask_all() -> list[str]:
        async with server.async_client() as client:
            return await asyncio.gather(*(ask(client, prompt) for prompt in prompts))

    encode = engine.tokenizer.encode
    expected = [expected_text(engine, encode(p, add_special=True, parse_special=True), 30, 2) for p in prompts]
    assert asyncio.run(ask_all()) == expected


def test_a_seed_is_drawn_told_and_gives_the_same_answer_again(server: ServerThread) -> None:
    first = post(server, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 20})
    seed = int(first.headers["x-tokenmill-seed"])
    again = post(server, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 20, "seed": seed})
    assert first.json()["choices"] == again.json()["choices"]
    other = post(server, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 20})
    assert first.json()["choices"] != other.json()["choices"]


def test_models(server: ServerThread, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["scripted"]
    assert client.models.retrieve("scripted").owned_by == "tokenmill"
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4o")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="served here: scripted"):
        client.chat.completions.create(model="gpt-4o", messages=CHAT)  # type: ignore[arg-type]


def test_harmless_and_neutral_fields_are_accepted(server: ServerThread) -> None:
    body = {
        "model": "scripted",
        "messages": [
            {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
            {"role": "user", "content": "x", "name": "ann"},
        ],
        "max_tokens": 3,
        "user": "u",
        "store": False,
        "metadata": {"a": "b"},
        "tools": [],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "parallel_tool_calls": True,
        "stop": None,
        "logit_bias": {"5": -100},
        "top_k": -1,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "ignore_eos": True,
    }
    response = post(server, "/v1/chat/completions", body)
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    ("body", "parameter", "words"),
    [
        (b"{", None, "not valid JSON"),
        (b"\xff\xfe", None, "not valid JSON"),
        ([], None, "should be an object"),
        ({}, "messages", "missing"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages.0.role", "'user'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages.0.content",
            "",
        ),
        ({"messages": CHAT, "temprature": 1, "foo": 2}, "temprature", "unknown field: temprature, foo"),
        ({"messages": CHAT, "temperature": 3}, "temperature", "less than or equal to 2"),
        ({"messages": CHAT, "temperature": "hot"}, "temperature", "valid number"),
        (b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}', "temperature", "finite"),
        ({"messages": CHAT, "n": 1000}, "n", "less than or equal to 16"),
        ({"messages": CHAT, "max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"messages": CHAT, "top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ({"messages": CHAT, "stream_options": {}}, "stream_options", "needs stream"),
        ({"messages": CHAT, "tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"messages": CHAT, "response_format": {"type": "json_object"}}, "response_format", "not supported"),
        ({"messages": CHAT, "logit_bias": {"x": 1}}, "logit_bias.x", "pattern"),
        ({"messages": CHAT, "logit_bias": {"99999": 1}}, "logit_bias", "outside 0…257"),
        ({"messages": CHAT, "stop": ["a"] * 17}, "stop", "at most 16"),
        ({"messages": CHAT, "stop": ""}, None, "at least 1 character"),
        ({"messages": [{"role": "user", "content": "x" * 2000}]}, "messages", "but the context holds 1024"),
    ],
)
def test_bad_chat_requests_name_the_field(server: ServerThread, body: Any, parameter: str | None, words: str) -> None:
    response = post(server, "/v1/chat/completions", body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]
    if parameter is not None:
        assert error["param"] == parameter
    assert len(error["message"]) < 1000


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"prompt": "x", "echo": True}, "echo is not supported"),
        ({"prompt": "x", "best_of": 2}, "best_of is not supported"),
        ({"prompt": "x", "messages": []}, "unknown field: messages"),
        ({"prompt": []}, "at least 1"),
        ({"prompt": ["a"] * 9, "n": 2}, "more than 16"),
        ({"prompt": [99999]}, "token ids outside"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": "x" * 1024}, "1024 tokens, but the context holds 1024"),
    ],
)
def test_bad_completion_requests(server: ServerThread, body: Any, words: str) -> None:
    response = post(server, "/v1/completions", body)
    assert response.status_code == 400, response.text
    assert words in response.json()["error"]["message"]


def test_other_errors_have_the_same_shape(server: ServerThread) -> None:
    missing = httpx.get(f"{server.url}/v1/nothing")
    assert (missing.status_code, set(missing.json()["error"])) == (404, {"message", "type", "param", "code"})
    assert httpx.get(f"{server.url}/v1/chat/completions").status_code == 405
    too_long = post(server, "/v1/completions", {"prompt": "x" * 5_000_000})
    assert (too_long.status_code, too_long.json()["error"]["code"]) == (413, "request_too_large")
    context = post(server, "/v1/completions", {"prompt": "x" * 1024})
    assert context.json()["error"]["code"] == "context_length_exceeded"


def test_frames_are_sse(server: ServerThread) -> None:
    response = post(server, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 3, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert all(frame["object"] == "chat.completion.chunk" and "usage" not in frame for frame in frames(response))


def test_metrics_move(server: ServerThread) -> None:
    before = {
        name: server.metric(name)
        for name in (
            "tokenmill_output_tokens_total",
            'tokenmill_sequences_finished_total{reason="length"}',
            "tokenmill_time_to_first_token_seconds_count",
            "tokenmill_inter_token_seconds_count",
            'tokenmill_step_rows_total{kind="decode"}',
        )
    }
    post(server, "/v1/completions", {"prompt": "abc", "max_tokens": 7})
    moved = [server.metric(name) - value for name, value in before.items()]
    assert moved == [7, 1, 1, 6, 6]
    text = httpx.get(f"{server.url}/metrics").text
    assert "tokenmill_engine_info{" in text
    assert 'kernel_set="scripted"' in text
