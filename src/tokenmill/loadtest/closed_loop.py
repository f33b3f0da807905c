"""A closed loop: each of N users sends the next request when the last one is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp

from tokenmill.loadtest.client import RequestRecord, stream_chat


async def run_closed_loop(
    base_url: str,
    model: str,
    prompts: Sequence[str],
    *,
    users: int,
    requests_per_user: int,
    parameters: Mapping[str, Any],
    timeout_s: float = 300.0,
    on_record: Callable[[RequestRecord], None] | None = None,
) -> list[RequestRecord]:
    """Runs the loop and returns every request's record in order of its start.

    Args:
        base_url: of the server, without "/v1".
        model: the model's name as the server lists it.
        prompts: request number i takes prompt i modulo their number.
        users: concurrent users; each keeps one request in flight.
        requests_per_user: how many each sends.
        parameters: fields of every request's body (max_tokens, temperature, seed, …).
        timeout_s: for one request from start to end.
        on_record: called after each request, for progress.
    """
    records: list[RequestRecord] = []

    async def user(number: int, session: aiohttp.ClientSession) -> None:
        for turn in range(requests_per_user):
            prompt = prompts[(number + turn * users) % len(prompts)]
            messages = [{"role": "user", "content": prompt}]
            record = await stream_chat(session, base_url, model, messages, parameters)
            records.append(record)
            if on_record is not None:
                on_record(record)

    timeout = aiohttp.ClientTimeout(total=timeout_s)
    connector = aiohttp.TCPConnector(limit=0)  # the loop itself bounds the connections
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        await asyncio.gather(*(user(number, session) for number in range(users)))
    return sorted(records, key=lambda record: record.started_s)
