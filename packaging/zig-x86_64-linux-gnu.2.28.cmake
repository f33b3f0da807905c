# CMake toolchain of the release wheel for x86-64: Zig's clang against glibc 2.28 (docs/decisions/0002).
# TOKENMILL_ZIG is the path of the zig binary inside the PyPI package ziglang.
if(NOT DEFINED ENV{TOKENMILL_ZIG})
  message(FATAL_ERROR "TOKENMILL_ZIG is not set; build with packaging/build_wheel.py")
endif()
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER "$ENV{TOKENMILL_ZIG}" cc)
set(CMAKE_CXX_COMPILER "$ENV{TOKENMILL_ZIG}" c++)
set(CMAKE_C_COMPILER_TARGET x86_64-linux-gnu.2.28)
set(CMAKE_CXX_COMPILER_TARGET x86_64-linux-gnu.2.28)
# Zig compiles for the build machine's CPU unless told otherwise: the baseline must stay x86-64, or the wheel would
# crash on older machines. Zig also traps undefined behaviour by default, which is for debug builds.
set(CMAKE_C_FLAGS_INIT "-mcpu=x86_64 -fno-sanitize=undefined")
set(CMAKE_CXX_FLAGS_INIT "-mcpu=x86_64 -fno-sanitize=undefined")
