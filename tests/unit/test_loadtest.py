from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tokenmill.loadtest.client import RequestRecord, stream_chat
from tokenmill.loadtest.closed_loop import run_closed_loop
from tokenmill.loadtest.sse import read_events
from tokenmill.loadtest.summarise import percentiles, summarise


def events_of(data: bytes, chunk_bytes: int) -> list[str]:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(data), chunk_bytes):
            yield data[start : start + chunk_bytes]

    async def collect() -> list[str]:
        return [event async for event in read_events(chunks())]

    return asyncio.run(collect())


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_sse_events_whatever_the_chunks(chunk_bytes: int, newline: str) -> None:
    text = ': ping\n\nevent: x\ndata: {"a": "é 漢"}\n\ndata:one\ndata: two\nid: 7\n\n\ndata: [DONE]\n\ndata: cut off'
    data = text.replace("\n", newline).encode()
    assert events_of(data, chunk_bytes) == ['{"a": "é 漢"}', "one\ntwo", "[DONE]"]


def test_percentiles_are_values_that_were_seen() -> None:
    result = percentiles([0.4, 0.1, 0.3, 0.2])
    assert (result.count, result.p50, result.p90, result.p99, result.maximum) == (4, 0.2, 0.4, 0.4, 0.4)
    assert percentiles(list(range(1, 101))).p99 == 99


def test_percentiles_of_nothing_are_not_a_number() -> None:
    result = percentiles([])
    assert result.count == 0
    assert math.isnan(result.p50)


def record(start: float, content: tuple[float, ...], end: float, *, tokens: int, error: str = "") -> RequestRecord:
    return RequestRecord(start, end, content, "x", "stop", 10, tokens, error)


def test_summary_by_hand() -> None:
    records = [
        record(0.0, (0.5, 0.6, 0.8), 1.0, tokens=3),
        record(1.0, (1.2, 1.3), 2.0, tokens=2),
        record(1.0, (), 4.0, tokens=0, error="HTTP 503"),
    ]
    report = summarise(records, model="m", kernel_set="reference", threads=2, users=2, server_peak_rss_bytes=None)
    assert (report.requests, report.failed, report.output_tokens, report.prompt_tokens) == (3, 1, 5, 20)
    assert report.duration_s == 4.0
    assert report.output_tokens_per_s == 1.25
    assert report.ttft.count == 2
    assert report.ttft.p50 == pytest.approx(0.2)
    assert report.ttft.maximum == pytest.approx(0.5)
    assert report.inter_token.count == 3
    assert report.inter_token.maximum == pytest.approx(0.2)
    assert report.time_to_last_token.p50 == pytest.approx(1.0)


def stream_server(events: list[str], *, status: int = 200) -> TestServer:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["stream"] is True
        if status != 200:
            return web.Response(status=status, text="queue is full")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(f"data: {event}\n\n".encode())
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    return TestServer(app)


def ask(events: list[str], *, status: int = 200) -> RequestRecord:
    async def talk() -> RequestRecord:
        async with stream_server(events, status=status) as server, aiohttp.ClientSession() as session:
            url = str(server.make_url("")).rstrip("/")
            return await stream_chat(session, url, "m", [{"role": "user", "content": "hi"}], {"max_tokens": 4})

    return asyncio.run(talk())


def chunk(content: str | None = None, finish: str | None = None) -> str:
    delta = {"content": content} if content is not None else {"role": "assistant"}
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


USAGE = json.dumps({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})


def test_a_whole_answer() -> None:
    result = ask([chunk(), chunk(""), chunk("Hel"), chunk("lo"), chunk(None, "stop"), USAGE, "[DONE]"])
    assert result.ok
    assert (result.text, result.finish_reason) == ("Hello", "stop")
    assert (result.prompt_tokens, result.output_tokens) == (5, 2)
    assert len(result.content_s) == 2
    assert result.started_s <= result.content_s[0] <= result.ended_s


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([chunk("x")], "ended before"),
        ([chunk("x"), chunk(None, "stop")], "ended before"),
        ([chunk("x"), chunk(None, "stop"), "[DONE]"], "no usage"),
        ([chunk("x"), json.dumps({"error": {"message": "boom"}})], "boom"),
        (["{"], "not JSON"),
    ],
)
def test_a_broken_stream_is_a_failure(events: list[str], complaint: str) -> None:
    result = ask(events)
    assert not result.ok
    assert complaint in result.error


def test_a_refusal_keeps_its_status_and_reason() -> None:
    result = ask([], status=503)
    assert result.error == "HTTP 503: queue is full"


def test_no_server_is_a_failure_not_an_exception() -> None:
    async def talk() -> RequestRecord:
        async with aiohttp.ClientSession() as session:
            return await stream_chat(session, "http://127.0.0.1:9", "m", [], {})

    assert "ClientConnectorError" in asyncio.run(talk()).error


def test_closed_loop_sends_every_request_and_reports_each() -> None:
    seen: list[RequestRecord] = []

    async def talk() -> list[RequestRecord]:
        async with stream_server([chunk("a"), chunk(None, "length"), USAGE, "[DONE]"]) as server:
            url = str(server.make_url("")).rstrip("/")
            return await run_closed_loop(
                url, "m", ["p", "q"], users=3, requests_per_user=2, parameters={}, on_record=seen.append
            )

    records = asyncio.run(talk())
    assert len(records) == len(seen) == 6
    assert all(item.ok for item in records)
    assert [item.started_s for item in records] == sorted(item.started_s for item in records)
