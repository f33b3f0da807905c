"""Server-sent events from a byte stream, as the HTML standard defines them (section "Server-sent events")."""

from __future__ import annotations

from collections.abc import AsyncIterator


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yields the data of each event. Chunks may end anywhere, also within a character or a line end.

    Comments and the fields event, id and retry are skipped. An event cut off by the end of the stream is dropped.
    """
    buffer = b""
    data: list[str] = []
    async for chunk in chunks:
        buffer += chunk
        # A carriage return at the very end may be half of CR LF: keep it for the next chunk.
        held = b"\r" if buffer.endswith(b"\r") else b""
        complete = buffer[: len(buffer) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = complete.split(b"\n")
        buffer = rest + held
        for line in lines:
            if not line:
                if data:
                    yield "\n".join(data)
                data = []
            elif line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" ").decode("utf-8", errors="replace"))
