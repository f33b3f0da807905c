"""Failures as HTTP answers in OpenAI's shape. A client never sees a traceback; the log does."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenmill.server.responses import error_body
from tokenmill.vocabulary.errors import (
    ContextLengthError,
    OverloadedError,
    RequestError,
    TemplateError,
    TokenmillError,
    UnavailableError,
)

logger = logging.getLogger(__name__)

_RETRY_UNAVAILABLE_S = 5


class UnknownModelError(RequestError):
    """A request names a model that is not served here."""

    def __init__(self, name: str, served: tuple[str, ...]) -> None:
        super().__init__(
            f"the model {name[:100]!r} does not exist; served here: {', '.join(served)}", parameter="model"
        )


class BodyTooLargeError(RequestError):
    """A request body past the limit."""


class SlowBodyError(RequestError):
    """A request body that did not arrive in time."""


class ClientLeftError(RequestError):
    """The client closed the connection while it was sending; nobody reads the answer."""


class GenerationFailedError(TokenmillError):
    """The engine ended a sequence with an error."""


def error_response(error: Exception) -> JSONResponse:
    """The answer to an error, whatever it is."""
    status, kind, code, headers = _classify(error)
    parameter = error.parameter if isinstance(error, RequestError) else None
    body = error_body(_message(error, status), kind, parameter, code)
    return JSONResponse(body, status, headers)


def error_frame(error: Exception) -> dict[str, Any]:
    """The same for a stream that has begun, where no status can be sent any more."""
    status, kind, code, _ = _classify(error)
    return error_body(_message(error, status), kind, None, code)


# The first class that an error is an instance of decides: status, type, code.
_ANSWERS: tuple[tuple[type[Exception], int, str, str | None], ...] = (
    (UnknownModelError, 404, "invalid_request_error", "model_not_found"),
    (BodyTooLargeError, 413, "invalid_request_error", "request_too_large"),
    (SlowBodyError, 408, "invalid_request_error", "request_timeout"),
    (ClientLeftError, 499, "invalid_request_error", "client_closed_request"),  # the status that nginx logs for it
    (ContextLengthError, 400, "invalid_request_error", "context_length_exceeded"),
    (RequestError, 400, "invalid_request_error", None),
    (TemplateError, 400, "invalid_request_error", None),
    (OverloadedError, 429, "rate_limit_error", "server_overloaded"),
    (UnavailableError, 503, "service_unavailable_error", None),
    (Exception, 500, "server_error", None),
)


def _classify(error: Exception) -> tuple[int, str, str | None, dict[str, str]]:
    if isinstance(error, HTTPException):
        return error.status_code, "invalid_request_error", None, dict(error.headers or {})
    headers = {}
    if isinstance(error, OverloadedError):
        headers["Retry-After"] = str(error.retry_after_s)
    elif isinstance(error, UnavailableError):
        headers["Retry-After"] = str(_RETRY_UNAVAILABLE_S)
    status, kind, code = next(row[1:] for row in _ANSWERS if isinstance(error, row[0]))
    return status, kind, code, headers


def _message(error: Exception, status: int) -> str:
    if isinstance(error, TokenmillError):
        return f"{error.what}. {error.hint[:1].upper()}{error.hint[1:]}".rstrip(" .") if error.hint else error.what
    if isinstance(error, HTTPException):
        return error.detail
    return "an internal error; the server's log has the details" if status == 500 else str(error)


async def _handle(request: Request, error: Exception) -> Response:
    response = error_response(error)
    if response.status_code >= 500 and not isinstance(error, UnavailableError):
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    request.app.state.server.metrics.count_refusal(response.status_code)
    return response


def exception_handlers() -> dict[Any, Callable[[Request, Exception], Awaitable[Response]]]:
    """For Starlette: every exception becomes an answer in the one shape."""
    return {TokenmillError: _handle, HTTPException: _handle, Exception: _handle}
