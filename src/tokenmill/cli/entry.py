"""Where the console script begins: Ctrl-C is clean from the first import on."""

from __future__ import annotations

import sys
from io import TextIOWrapper


def run() -> None:
    """Runs the `tokenmill` command."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # A prompt may hold any bytes and an answer any character; a terminal's encoding must not end the program.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        from tokenmill.cli.main import app

        app(prog_name="tokenmill")
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted.\n")
        sys.exit(130)
