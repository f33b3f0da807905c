"""Errors that reach a user. Each says what is wrong, where, and what to do next."""

from __future__ import annotations


class TokenmillError(Exception):
    """Base of every expected failure.

    Args:
        what: what is wrong, one sentence without a trailing full stop.
        where: the file, key, field or address concerned; empty when `what` names it.
        hint: what the user can do next; empty when there is nothing.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        super().__init__(self.describe())

    def describe(self) -> str:
        """The message as one or two lines, for a terminal or a log."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n  {self.hint}" if self.hint else head


class ModelFileError(TokenmillError):
    """A model file is damaged, truncated, or not what it claims to be."""


class UnsupportedModelError(TokenmillError):
    """A well-formed model needs something that is not built yet; the message names it."""


class FetchError(TokenmillError):
    """A model could not be found or downloaded."""


class RequestError(TokenmillError):
    """A generation request that cannot be served as asked (bad parameter, prompt past the context).

    `parameter` is the request field at fault, when there is one.
    """

    def __init__(self, what: str, *, parameter: str | None = None, where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint)
        self.parameter = parameter


class ContextLengthError(RequestError):
    """The prompt does not fit the context; the message has both numbers."""


class OverloadedError(TokenmillError):
    """A limit is reached, now. `retry_after_s` is a whole number of seconds, at least 1.

    `reason` says which limit, in one word for metrics: "queue_full", "deadline", or one of a client's own limits.
    """

    def __init__(self, what: str, *, retry_after_s: int, reason: str = "queue_full") -> None:
        super().__init__(what)
        self.retry_after_s = max(1, retry_after_s)
        self.reason = reason


class UnavailableError(TokenmillError):
    """The engine takes no requests: it is loading, draining, closed, or has failed."""


class CapacityError(TokenmillError):
    """The host cannot hold what was asked for (weights, KV cache); the message has the numbers."""


class KernelSetError(TokenmillError):
    """No usable kernel set, a forced one that cannot run here, or one that fails its self-test."""


class ForcedKernelSetError(KernelSetError):
    """The kernel set asked for by name is not in this build, or cannot run here; the message has the choices."""


class TemplateError(TokenmillError):
    """A chat template that is missing, broken, or past its time or output limit."""
