"""The file that a recorded engine writes. A disk that is full ends the record, never the engine."""

from __future__ import annotations

import logging
from pathlib import Path

from tokenmill.vocabulary.errors import RequestError

logger = logging.getLogger(__name__)


class RecordFile:
    """Lines into a new file at `path`, which must not exist yet.

    Raises:
        RequestError: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._stream = path.open("x", encoding="utf-8")
        except OSError as error:
            msg = f"the record {path} cannot be made: {error.strerror}"
            raise RequestError(msg, parameter="record_path") from error

    def write(self, line: str) -> None:
        """Adds a line."""
        if self._stream.closed:
            return
        try:
            self._stream.write(line + "\n")
        except OSError as error:
            logger.warning("The record %s ends here: %s", self._path, error.strerror)
            self.close()

    def close(self) -> None:
        """Writes what is left; safe to call twice."""
        try:
            self._stream.close()
        except OSError as error:
            logger.warning("The record %s lacks its end: %s", self._path, error.strerror)
