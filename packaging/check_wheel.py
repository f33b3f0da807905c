"""Holds the release wheel to its promises, in a venv of its own with no compiler in PATH. Run by `make check-wheel`.

From `pip install` to the first token in under 60 s (the model is there already), the kernel set equal to the reference,
the same greedy tokens as the build in this interpreter, and no instruction of a kernel set outside its functions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from stray_instructions import find_vector_code, machine_code

ROOT = Path(__file__).resolve().parent.parent
FIRST_TOKEN_WITHIN_S = 60.0
ASK = ["generate", "--prompt", "Why is the sky blue?", "--max-tokens", "16", "--temperature", "0", "--json"]


def run_json(program: Path, *arguments: str) -> Any:
    """The JSON document that a tokenmill command prints."""
    environment = {**os.environ, "PATH": str(program.parent)}
    result = subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE, env=environment)
    return json.loads(result.stdout)


def stray_functions(wheel: Path, sets: set[str]) -> list[str]:
    """Functions of the wheel's module that have instructions of a set and belong to none.

    Names come from the module in the build folder, which has the same code and was not stripped.
    """
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if Path(name).match("_native*.so"))
        code = machine_code(Path(archive.extract(name, folder)))
    built = [module for module in (ROOT / "build").glob("zig-*/_native*.so") if machine_code(module) == code]
    if not built:
        return [f"unknown: no module under build/ has the code of {name}"]
    return list(find_vector_code(built[0], sets).strays)


def main() -> None:
    """Exits with a message when a promise is broken."""
    (wheel,) = (ROOT / "dist").glob("tokenmill-*.whl")
    built_here = Path(sys.executable).with_name("tokenmill")
    expected = run_json(built_here, *ASK)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        program = Path(folder) / "bin" / "tokenmill"
        start = time.monotonic()
        subprocess.run([program.with_name("pip"), "install", "--quiet", str(wheel)], check=True)
        answer = run_json(program, *ASK)
        seconds = time.monotonic() - start
        machine = run_json(program, "explain", "--json")["machine"]
    print(f"{wheel.name}: installed and answered after {seconds:.1f} s, kernel set equal to the reference")
    if answer["text"] != expected["text"]:
        sys.exit(f"the wheel answers {answer['text']!r}, the build here {expected['text']!r}")
    if machine["self_test_failures"]:
        sys.exit(f"the wheel's kernel set differs from the reference: {machine['self_test_failures']}")
    strays = stray_functions(wheel, {entry["name"] for entry in machine["kernel_sets"]} - {"reference"})
    if strays:
        sys.exit(f"instructions of a kernel set outside its functions: {strays}")
    if seconds > FIRST_TOKEN_WITHIN_S:
        sys.exit(f"the first token came later than {FIRST_TOKEN_WITHIN_S:g} s after pip install began")


if __name__ == "__main__":
    main()
