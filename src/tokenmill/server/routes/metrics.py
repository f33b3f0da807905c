"""GET /metrics for Prometheus."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tokenmill.server.state import state_of


async def metrics(request: Request) -> Response:
    """The text exposition format; the engine's own gauges are there once the model is loaded."""
    return Response(state_of(request).metrics.render(), headers={"content-type": CONTENT_TYPE_LATEST})


routes = [Route("/metrics", metrics, methods=["GET"])]
