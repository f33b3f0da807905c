// CPU features that a kernel set may require. One bit each: no feature implies another.
#pragma once
#include <cstdint>

namespace tokenmill {

enum class CpuFeature : uint8_t {
  // x86-64
  avx = 0,
  avx2,
  fma,
  f16c,
  bmi2,
  avx512f,
  avx512bw,
  avx512dq,
  avx512vl,
  avx512_vnni,
  avx512_vbmi,
  avx_vnni,
  amx_tile,
  amx_int8,
  // aarch64, after all of x86-64
  asimd,
  asimddp,
  i8mm,
  sve,
  sve2,
  svei8mm,
  count,
};

constexpr int kCpuFeatureCount = static_cast<int>(CpuFeature::count);

constexpr const char* kCpuFeatureNames[kCpuFeatureCount] = {
    "avx",      "avx2",     "fma",         "f16c",        "bmi2",     "avx512f",  "avx512bw",
    "avx512dq", "avx512vl", "avx512_vnni", "avx512_vbmi", "avx_vnni", "amx_tile", "amx_int8",
    "asimd",    "asimddp",  "i8mm",        "sve",         "sve2",     "svei8mm",
};

using CpuFeatureMask = uint64_t;

constexpr CpuFeatureMask feature_bit(CpuFeature feature) { return CpuFeatureMask{1} << static_cast<int>(feature); }

}  // namespace tokenmill
