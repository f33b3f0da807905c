"""GET /health (is the process alive?) and /ready (should it get traffic?)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tokenmill.server.state import state_of


async def health(request: Request) -> JSONResponse:
    """200 unless the engine has failed, which only a restart mends; loading and draining are healthy."""
    state = state_of(request)
    return JSONResponse({"status": state.status}, 503 if state.status == "failed" else 200)


async def ready(request: Request) -> JSONResponse:
    """200 when requests are served; else 503 with the reason, and while loading with the share that is done."""
    state = state_of(request)
    body: dict[str, object] = {"status": state.status}
    if state.status == "loading":
        body["progress"] = round(state.progress, 3)
    return JSONResponse(body, 200 if state.status == "ready" else 503)


routes = [Route("/health", health, methods=["GET"]), Route("/ready", ready, methods=["GET"])]
