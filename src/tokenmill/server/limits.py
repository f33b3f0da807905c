"""Bounds on what a client may send before anything is parsed."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from tokenmill.server.errors import BodyTooLargeError, ClientLeftError, SlowBodyError

BODY_WITHIN_S = 60.0


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body, read no further than the limit.

    Raises:
        BodyTooLargeError: it is longer, by its Content-Length or by what has arrived.
        SlowBodyError: it did not arrive within BODY_WITHIN_S.
        ClientLeftError: the connection ended first.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            return await _read(request, max_bytes)
    except TimeoutError:
        raise SlowBodyError(f"the request body did not arrive within {BODY_WITHIN_S:g} s") from None
    except ClientDisconnect:
        raise ClientLeftError("the client left before its request had arrived") from None


async def _read(request: Request, max_bytes: int) -> bytes:
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the request body is larger than {max_bytes} bytes")
