// Scalar arithmetic in the fixed operation order of docs/numerics.md. Only code compiled without instruction flags may
// include it: the functions are inline, and the linker keeps one copy of each.
#pragma once
#include <bit>
#include <cstdint>

namespace tokenmill::reference {

// One rounding, whatever the machine: the compiler's builtin is exact with or without an instruction for it.
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0x1F) {  // infinity, or a NaN, which becomes quiet
    const uint32_t quiet = mantissa != 0 ? 0x400000U : 0U;
    return std::bit_cast<float>(sign | 0x7F800000U | quiet | (mantissa << 13));
  }
  if (exponent == 0) {  // zero and denormals: an exact product
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// Round to nearest, ties to even; overflow gives infinity.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {  // NaN: quiet, with the upper payload bits
    return static_cast<uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  }
  if (magnitude >= 0x477FF000U) {  // 65520 and above round to infinity
    return static_cast<uint16_t>(sign | 0x7C00U);
  }
  if (magnitude < 0x38800000U) {  // below the smallest normal 2^-14: count in units of 2^-24
    // Adding 0.5 leaves the units in the low mantissa bits, rounded by the addition itself.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t odd = (magnitude >> 13) & 1U;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000U + 0xFFFU + odd) >> 13));
}

inline float bfloat_to_float(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

// 1.5 * 2^23: adding it leaves the nearest integer (ties to even) in the low mantissa bits.
constexpr float kRoundMagic = 12582912.0F;

// Nearest integer, ties to even, for |x| < 2^22.
inline float round_to_integer(float x) { return (x + kRoundMagic) - kRoundMagic; }

// e^x for x clamped to [-87, 88]; a NaN stays a NaN. At most 3 ulp (tests/reference_math_test.cpp).
inline float exp(float x) {
  x = -87.0F > x ? -87.0F : x;
  x = 88.0F < x ? 88.0F : x;
  const float t = fma(x, 1.44269504F, kRoundMagic);
  const float n = t - kRoundMagic;
  float r = fma(n, -0.693145752F, x);  // ln 2 in two parts: the first has few enough bits that n times it is exact
  r = fma(n, -1.42860677e-6F, r);
  float p = 1.3888889e-3F;
  p = fma(p, r, 8.3333333e-3F);
  p = fma(p, r, 4.1666667e-2F);
  p = fma(p, r, 0.16666667F);
  p = fma(p, r, 0.5F);
  p = fma(p, r * r, r);
  p = p + 1.0F;
  // n is in -126..127, so 2^n is a normal number and the product is exact.
  const uint32_t integer = std::bit_cast<uint32_t>(t) - std::bit_cast<uint32_t>(kRoundMagic);
  return p * std::bit_cast<float>((integer + 127U) << 23);
}

// Sixteen partial sums, element i in lane i mod 16, folded 8-4-2-1.
inline float fold_lanes(float (&lane)[16]) {
  for (int step = 8; step >= 1; step /= 2) {
    for (int j = 0; j < step; ++j) {
      lane[j] += lane[j + step];
    }
  }
  return lane[0];
}

}  // namespace tokenmill::reference
