"""Finds instructions of a kernel set outside that set's own functions, by disassembling a built module (binutils).

An inline function of a header that was compiled with a set's flags may be the copy that the linker keeps for everybody,
and a static initialiser runs everywhere: both end a process on an older CPU with an illegal instruction. On x86-64 the
baseline has no instruction that begins with a VEX or EVEX prefix, and every set's instructions have one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

# In 64-bit mode the opcode bytes C4, C5 (VEX) and 62 (EVEX) mean nothing else; only a segment prefix may precede them.
_INSTRUCTION = re.compile(r"^ *[0-9a-f]+:\t(?:(?:2e|36|3e|26|64|65|67) )*(c4|c5|62) ")
_FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
# A mangled name within namespace tokenmill::<set>, lambdas and local classes included; a template of the standard
# library that only takes a type of the set as argument begins otherwise.
_IN_NAMESPACE = re.compile(r"^_ZZ*N[VK]*[RO]?9tokenmill(\d+)")


@dataclass(frozen=True, slots=True)
class VectorCode:
    """Where a module has VEX and EVEX instructions: how many by name of the set, and functions that are no set's."""

    vex: Counter[str]
    evex: Counter[str]
    strays: tuple[str, ...]


def set_of(symbol: str) -> str | None:
    """The namespace directly below tokenmill that a mangled name lies in, such as x86_avx2."""
    found = _IN_NAMESPACE.match(symbol)
    if found is None:
        return None
    return symbol[found.end() : found.end() + int(found[1])]


def find_vector_code(module: Path, sets: set[str]) -> VectorCode:
    """Disassembles a module with symbols. Functions outside the namespaces of `sets` with such code are strays."""
    listing = _run("objdump", "--disassemble", "--insn-width=16", str(module))
    vex: Counter[str] = Counter()
    evex: Counter[str] = Counter()
    strays: set[str] = set()
    function = ""
    for line in listing.splitlines():
        if named := _FUNCTION.match(line):
            function = named[1]
        elif found := _INSTRUCTION.match(line):
            owner = set_of(function)
            if owner in sets:
                (evex if found[1] == "62" else vex)[owner] += 1
            else:
                strays.add(function)
    return VectorCode(vex, evex, tuple(sorted(strays)))


def machine_code(module: Path) -> bytes:
    """The module's section of code, which stripping leaves as it is."""
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "text"
        _run("objcopy", "--dump-section", f".text={code}", str(module), "/dev/null")
        return code.read_bytes()


def _run(program: str, *arguments: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise FileNotFoundError(f"{program} is not installed: apt-get install binutils")
    return subprocess.run([path, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout
