"""One streaming chat request, timed on the client's side."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from tokenmill.loadtest.sse import read_events


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What one request saw. Times are in seconds on the monotonic clock of this process.

    `content_s` holds the arrival of every chunk with text: the first is what TTFT means here, gaps between neighbours
    are inter-token times. A server that sends several tokens in one chunk shows fewer, longer gaps.
    """

    started_s: float
    ended_s: float
    content_s: tuple[float, ...]
    text: str
    finish_reason: str | None
    prompt_tokens: int
    output_tokens: int
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the whole answer came, with its token counts."""
        return not self.error


async def stream_chat(
    session: aiohttp.ClientSession,
    base_url: str,
    model: str,
    messages: Sequence[Mapping[str, str]],
    parameters: Mapping[str, Any],
) -> RequestRecord:
    """Sends a streaming chat completion and reads it to its end.

    Args:
        session: its timeouts are the ones that hold.
        base_url: of the server, without "/v1".
        model: the model's name as the server lists it.
        messages: role and content of each turn.
        parameters: further fields of the body, such as max_tokens, temperature and seed.

    Returns:
        The record; failures of the network, the server and the stream are in its `error`, never raised.
    """
    body = {"model": model, "messages": list(messages), "stream": True, "stream_options": {"include_usage": True}}
    answer = _Answer(started_s=time.monotonic())
    try:
        async with session.post(f"{base_url}/v1/chat/completions", json=body | dict(parameters)) as response:
            if response.status != 200:
                answer.error = f"HTTP {response.status}: {(await response.text())[:300]}"
            else:
                async for event in read_events(response.content.iter_any()):
                    answer.take(event, time.monotonic())
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        answer.error = f"{type(error).__name__}: {error}"
    return answer.record(time.monotonic())


class _Answer:
    """Collects the events of one stream."""

    def __init__(self, started_s: float) -> None:
        self.error = ""
        self._started_s = started_s
        self._content_s: list[float] = []
        self._text: list[str] = []
        self._finish_reason: str | None = None
        self._usage: Mapping[str, Any] = {}
        self._done = False

    def take(self, event: str, now_s: float) -> None:
        """Takes the data of one event."""
        if event == "[DONE]":
            self._done = True
            return
        try:
            chunk = json.loads(event)
        except ValueError:
            self.error = f"not JSON: {event[:200]}"
            return
        if "error" in chunk:
            self.error = str(chunk["error"])
            return
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            text = (choice.get("delta") or {}).get("content")
            if text:
                self._content_s.append(now_s)
                self._text.append(text)
            self._finish_reason = choice.get("finish_reason") or self._finish_reason

    def record(self, ended_s: float) -> RequestRecord:
        """The finished record; an answer without its end or its usage is a failure."""
        if not self.error and not (self._done and self._finish_reason):
            self.error = "the stream ended before the answer did"
        if not self.error and "completion_tokens" not in self._usage:
            self.error = "the server sent no usage"
        return RequestRecord(
            started_s=self._started_s,
            ended_s=ended_s,
            content_s=tuple(self._content_s),
            text="".join(self._text),
            finish_reason=self._finish_reason,
            prompt_tokens=int(self._usage.get("prompt_tokens", 0)),
            output_tokens=int(self._usage.get("completion_tokens", 0)),
            error=self.error,
        )
