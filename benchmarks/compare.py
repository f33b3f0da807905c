"""Compares two benchmark reports: benchmarks/compare.py A.json B.json, the same as `tokenmill bench compare`."""

from __future__ import annotations

import sys

from tokenmill.cli.main import app

if __name__ == "__main__":
    app(["bench", "compare", *sys.argv[1:]], prog_name="tokenmill")
