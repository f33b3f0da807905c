"""POST /v1/chat/completions."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.routing import Route

from tokenmill.server.choices import Choices
from tokenmill.server.limits import read_body
from tokenmill.server.protocol import ChatRequest, parse
from tokenmill.server.responses import ChatShape
from tokenmill.server.state import state_of
from tokenmill.server.streaming import GenerationResponse
from tokenmill.vocabulary.errors import RequestError


async def chat_completions(request: Request) -> GenerationResponse:
    """Answers a conversation."""
    state = state_of(request)
    engine = state.serving_engine()
    asked = parse(ChatRequest, await read_body(request, state.settings.max_body_bytes))
    model = state.check_model(asked.model)
    with state.entering() as leave:
        loop = asyncio.get_running_loop()
        prompt = await loop.run_in_executor(state.text_pool, engine.encode_chat, asked.conversation)
        try:
            choices = Choices(engine, asked.generation_requests([prompt]), 1, state.metrics, at_start=True)
        except RequestError as error:
            if error.parameter == "prompt":  # the engine's word for it
                error.parameter = "messages"
            raise
    shape = ChatShape(model, with_logprobs=bool(asked.logprobs), usage_frame=asked.wants_usage_frame)
    return GenerationResponse(state.settings, choices, shape, streamed=asked.wants_stream, leave=leave)


routes = [Route("/v1/chat/completions", chat_completions, methods=["POST"])]
