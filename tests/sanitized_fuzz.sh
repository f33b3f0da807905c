#!/bin/bash
# The GGUF fuzz test with native code under AddressSanitizer and UndefinedBehaviorSanitizer.
# Usage: tests/sanitized_fuzz.sh [CASES] (20000 unless given). Run from anywhere; uses .venv, builds in build/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$PWD/.venv/bin/python
site=$PWD/build/sanitized-site
export TOKENMILL_FUZZ_CASES=${1:-20000}

# Build tools in .venv rather than in an isolated folder: a second run then builds only what changed.
"$python" -m pip install --quiet --disable-pip-version-check 'scikit-build-core>=0.11' 'nanobind>=2.4'
# --target leaves the package of .venv alone.
CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-2} "$python" -m pip install --quiet --no-deps \
  --no-build-isolation --upgrade --target "$site" \
  --config-settings=build-dir=build/sanitized \
  --config-settings=cmake.define.TOKENMILL_SANITIZE=address,undefined \
  --config-settings=install.strip=false .

compiler=${CXX:-g++}
# libstdc++ beside it: the sanitizer looks for the real __cxa_throw when it starts, before Python loads any C++.
preload=$("$compiler" -print-file-name=libasan.so):$("$compiler" -print-file-name=libstdc++.so)
# -S: an editable install in .venv puts itself before every path. Leaks are not looked for: Python keeps much at exit.
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
export PYTHONPATH=$site:$PWD/tests:$packages PYTHONMALLOC=malloc
export ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16:handle_segv=1 UBSAN_OPTIONS=print_stacktrace=1
LD_PRELOAD=$preload "$python" -S -c 'import sys, tokenmill._native as native
assert native.__file__.startswith(sys.argv[1] + "/"), native.__file__' "$site"
LD_PRELOAD=$preload exec "$python" -S -m pytest -p no:cacheprovider -s tests/properties/test_gguf_fuzz.py
