"""Where the console script begins: Ctrl-C is clean from the first import on."""

from __future__ import annotations

import sys


def run() -> None:
    """Runs the `tokenmill` command."""
    try:
        from tokenmill.cli.main import app

        app(prog_name="tokenmill")
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted.\n")
        sys.exit(130)
