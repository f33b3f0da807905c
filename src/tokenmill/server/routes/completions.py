"""POST /v1/completions."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.routing import Route

from tokenmill.engine.engine import Engine
from tokenmill.server.choices import Choices
from tokenmill.server.limits import read_body
from tokenmill.server.protocol import CompletionRequest, parse
from tokenmill.server.responses import CompletionShape
from tokenmill.server.state import state_of
from tokenmill.server.streaming import GenerationResponse


async def completions(request: Request) -> GenerationResponse:
    """Continues one or several texts."""
    state = state_of(request)
    engine = state.serving_engine()
    asked = parse(CompletionRequest, await read_body(request, state.settings.max_body_bytes))
    model = state.check_model(asked.model)
    with state.entering() as leave:
        loop = asyncio.get_running_loop()
        prompts = await loop.run_in_executor(state.text_pool, _encode_all, engine, asked.prompts)
        requests = asked.generation_requests(prompts)
        choices = Choices(engine, requests, len(prompts), state.metrics, at_start=False)
    shape = CompletionShape(model, with_logprobs=asked.logprobs is not None, usage_frame=asked.wants_usage_frame)
    return GenerationResponse(state.settings, choices, shape, streamed=asked.wants_stream, leave=leave)


def _encode_all(engine: Engine, prompts: list[str | list[int]]) -> list[list[int]]:
    """Token ids of each prompt. Control tokens written as text are read as such: a completion's prompt is raw."""
    encode = engine.tokenizer.encode
    return [
        encode(prompt, add_special=True, parse_special=True) if isinstance(prompt, str) else prompt
        for prompt in prompts
    ]


routes = [Route("/v1/completions", completions, methods=["POST"])]
