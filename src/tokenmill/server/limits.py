"""Bounds on what a client may send before anything is parsed."""

from __future__ import annotations

from starlette.requests import Request

from tokenmill.server.errors import BodyTooLargeError


async def read_body(request: Request, max_bytes: int) -> bytes:
    """The body, read no further than the limit.

    Raises:
        BodyTooLargeError: it is longer, by its Content-Length or by what has arrived.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the request body is larger than {max_bytes} bytes")
