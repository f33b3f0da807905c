"""Sends an answer, whole or as server-sent events, and stops working for a client that has gone."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tokenmill.server.choices import Choices
from tokenmill.server.errors import error_frame
from tokenmill.server.responses import Choice, Json, Shape
from tokenmill.server.state import ServerSettings
from tokenmill.vocabulary.errors import TokenmillError, UnavailableError

# Made once: json.dumps would make one for each frame.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

logger = logging.getLogger(__name__)

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the frames otherwise
]


async def collect(choices: Choices, shape: Shape) -> Json:
    """The whole answer, once every choice has ended."""
    done = [Choice() for _ in range(len(choices))]
    async for index, delta in choices.deltas():
        done[index].add(delta)
    return shape.whole(done, choices.usage)


class GenerationResponse:
    """An ASGI answer made while the engine works.

    Args:
        settings: for how long a stream may be silent or its client may take nothing.
        choices: read here; cancelled when the client disconnects.
        shape: of the answer.
        streamed: frames as they come, or one JSON body at the end.
        leave: called when the answer has ended in whatever way.
    """

    def __init__(
        self, settings: ServerSettings, choices: Choices, shape: Shape, *, streamed: bool, leave: Callable[[], None]
    ) -> None:
        self._keep_alive_s = settings.keep_alive_s
        self._stalled_s = settings.stalled_s
        self._choices = choices
        self._shape = shape
        self._streamed = streamed
        self._leave = leave
        # Told, so that an answer can be had again.
        self._seed = str(choices.seed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers; returns when the last byte is with the transport or the client has gone."""
        try:
            async with _cancelled_by_disconnect(self._choices, receive):
                if self._streamed:
                    await self._stream(send)
                else:
                    body = await collect(self._choices, self._shape)
                    await JSONResponse(body, headers={"x-tokenmill-seed": self._seed})(scope, receive, send)
        finally:
            self._choices.cancel()
            self._leave()

    async def _stream(self, send: Send) -> None:
        headers = [*_HEADERS, (b"x-tokenmill-seed", self._seed.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with _keep_alive(send, self._keep_alive_s) as send_frame, aclosing(self._frames()) as frames:
            async for frame in frames:
                try:
                    async with asyncio.timeout(self._stalled_s):
                        await send_frame(frame)
                except TimeoutError:
                    # Returning without the last piece makes uvicorn close the connection.
                    logger.warning("A client took nothing of its stream for %g s; it is cut off", self._stalled_s)
                    return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _frames(self) -> AsyncGenerator[bytes]:
        shape = self._shape
        for index in range(len(self._choices)):
            if (first := shape.first_frame(index)) is not None:
                yield _frame(first)
        try:
            async with aclosing(self._choices.deltas()) as deltas:
                async for index, delta in deltas:
                    yield _frame(shape.frame(index, delta))
        except TokenmillError as error:
            if not isinstance(error, UnavailableError):  # a planned stop is no fault, and is told once for all
                logger.error("A stream ends with an error: %s", error)  # noqa: TRY400 - the trace is of no use
            yield _frame(error_frame(error))
        else:
            if (last := shape.last_frame(self._choices.usage)) is not None:
                yield _frame(last)
        yield b"data: [DONE]\n\n"


def _frame(body: Json) -> bytes:
    return b"data: " + _encode(body).encode() + b"\n\n"


@asynccontextmanager
async def _cancelled_by_disconnect(choices: Choices, receive: Receive) -> AsyncIterator[None]:
    """Watches the connection while the body runs; the request's own body must have been read before."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        choices.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)


@asynccontextmanager
async def _keep_alive(send: Send, silence_s: float) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """Gives a function that sends a piece of the body. After a long silence the client gets a comment, which it skips.

    Both send whole lines in one call, so that they cannot cut into each other.
    """
    clock = asyncio.get_running_loop().time
    last_s = clock()

    async def send_frame(frame: bytes) -> None:
        nonlocal last_s
        last_s = clock()
        await send({"type": "http.response.body", "body": frame, "more_body": True})

    async def fill_silence() -> None:
        while True:
            await asyncio.sleep(max(0.001, last_s + silence_s - clock()))
            if clock() - last_s >= silence_s:
                await send_frame(b": keep-alive\n\n")

    filler = asyncio.create_task(fill_silence())
    try:
        yield send_frame
    finally:
        filler.cancel()
        await asyncio.gather(filler, return_exceptions=True)
