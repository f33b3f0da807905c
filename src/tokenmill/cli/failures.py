"""What a failure looks like to the person at the terminal: one message on stderr and an exit code."""

from __future__ import annotations

import sys

from tokenmill.vocabulary.errors import ForcedKernelSetError, RequestError, TokenmillError

FAILURE = 1
MISUSE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def exit_code_of(error: BaseException) -> int | None:
    """Prints an expected failure and returns its exit code; None for an error that nobody expected."""
    if isinstance(error, KeyboardInterrupt):
        sys.stderr.write("\nInterrupted.\n")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):  # the reader of our output left, as `head` does
        sys.stderr.close()
        return FAILURE
    if isinstance(error, RequestError | ForcedKernelSetError):
        _complain(str(error))
        return MISUSE
    if isinstance(error, TokenmillError):
        _complain(str(error))
        return FAILURE
    if isinstance(error, OSError):
        _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return FAILURE
    return None


def _complain(message: str) -> None:
    sys.stderr.write(f"tokenmill: {message}\n")
