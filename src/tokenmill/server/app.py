"""The ASGI application."""

from __future__ import annotations

import importlib
import pkgutil

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from tokenmill.engine.engine import Engine
from tokenmill.server import routes
from tokenmill.server.errors import exception_handlers
from tokenmill.server.state import ServerSettings, ServerState


def create_app(engine: Engine | None = None, settings: ServerSettings | None = None) -> Starlette:
    """The application; `app.state.server` is its ServerState.

    Args:
        engine: None while it is still loading: everything but health and metrics then answers 503.
        settings: defaults when None.
    """
    app = Starlette(routes=_all_routes(), exception_handlers=exception_handlers())
    state = ServerState(settings or ServerSettings())
    if engine is not None:
        state.become_ready(engine)
    app.state.server = state
    return app


def _all_routes() -> list[BaseRoute]:
    """Those of every file in routes/."""
    found: list[BaseRoute] = []
    for module in pkgutil.iter_modules(routes.__path__):
        found += importlib.import_module(f"{routes.__name__}.{module.name}").routes
    return found
