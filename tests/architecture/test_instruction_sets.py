"""No instruction of a kernel set lies outside that set's functions in the module that is installed here."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tokenmill import _native

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "packaging"))

from stray_instructions import find_vector_code, machine_code, set_of  # noqa: E402

MACHINE = platform.machine()
SETS = {str(entry["name"]): set(entry["required"]) for entry in _native.kernel_sets()}

pytestmark = pytest.mark.skipif(MACHINE not in {"x86_64", "AMD64"}, reason="looks for x86 encodings")


def module_with_symbols() -> Path:
    """The module in the build folder that the installed one was stripped from."""
    installed = machine_code(Path(_native.__file__))
    for candidate in sorted((ROOT / "build").glob("*/_native*.so")):
        if machine_code(candidate) == installed:
            return candidate
    pytest.fail(f"no module under build/ has the code of {_native.__file__}: build it here")


def test_set_instructions_stay_in_their_functions() -> None:
    fast = {name for name, required in SETS.items() if required}
    code = find_vector_code(module_with_symbols(), fast)
    assert code.strays == ()
    for name in fast:
        assert code.vex[name] > 1000, f"{name} has too few vector instructions: is anything looked at?"
        wide = any(feature.startswith("avx512") for feature in SETS[name])
        assert (code.evex[name] > 1000) == wide, f"{name}: {code.evex[name]} EVEX instructions"


def test_every_x86_set_folder_is_looked_at() -> None:
    folders = {file.parent.name for file in (ROOT / "native" / "kernels").glob("*/set.cmake")}
    assert {name for name in folders if name.startswith("x86_")} | {"reference"} == SETS.keys()


LEAKING = """
// An inline function of no set that becomes code of its own: the linker would keep one copy for everybody.
template <class T>
[[gnu::noinline]] T shared_sum(const T* values) {
  T sum = 0;
  for (int i = 0; i < 1024; ++i) sum += values[i];
  return sum;
}
namespace tokenmill::x86_avx2 {
int inside(const int* values) { return shared_sum(values); }
extern volatile int source;
}
struct Table {
  int values[256];
  Table() {
    const int step = tokenmill::x86_avx2::source;
    for (int i = 0; i < 256; ++i) values[i] = i * step;
  }
};
volatile int tokenmill::x86_avx2::source = 3;
Table table;
"""


def test_a_leak_is_found(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    assert compiler is not None, "this test builds a library: it needs g++"
    source = tmp_path / "leaking.cpp"
    source.write_text(LEAKING)
    library = tmp_path / "leaking.so"
    flags = ["-std=c++20", "-O3", "-mavx2", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, source, "-o", library], check=True)
    code = find_vector_code(library, {"x86_avx2"})
    assert any("shared_sum" in name for name in code.strays), code
    assert any("GLOBAL__" in name for name in code.strays), code


@pytest.mark.parametrize(
    ("symbol", "owner"),
    [
        ("_ZN9tokenmill8x86_avx23addEPfPKfl", "x86_avx2"),
        ("_ZN9tokenmill8x86_avx212_GLOBAL__N_14tileILi4EEEvPKf.cold", "x86_avx2"),
        ("_ZNK9tokenmill8x86_avx25Vec163sumEv", "x86_avx2"),
        ("_ZZN9tokenmill8x86_avx26lambdaEvENKUlPfE_clES0_", "x86_avx2"),
        ("_ZN9tokenmill8describeERKNSt7__cxx1112basic_stringE", "describe"),
        ("_ZSt4sortIPN9tokenmill8x86_avx24MineEEvT_S4_", None),
        ("_GLOBAL__sub_I_rows.cpp", None),
    ],
)
def test_namespaces_in_mangled_names(symbol: str, owner: str | None) -> None:
    assert set_of(symbol) == owner
