"""GET /v1/models and /v1/models/{name}."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tokenmill.server.responses import model_body, model_list_body
from tokenmill.server.state import ServerState, state_of


async def list_models(request: Request) -> JSONResponse:
    """Every name that requests may use."""
    state = state_of(request)
    state.serving_engine()
    return JSONResponse(model_list_body([_body(state, name) for name in state.model_names]))


async def show_model(request: Request) -> JSONResponse:
    """One of them."""
    state = state_of(request)
    state.serving_engine()
    name = request.path_params["name"]
    state.check_model(name)
    return JSONResponse(_body(state, name))


def _body(state: ServerState, name: str) -> dict[str, object]:
    return model_body(name, state.started_s, state.serving_engine().info.context_length)


routes = [
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models/{name:path}", show_model, methods=["GET"]),
]
