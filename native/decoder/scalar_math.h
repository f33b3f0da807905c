// exp and log in binary64, in a fixed order of IEEE operations: the same bits on every machine, unlike libm.
// No fma: plain multiplies and adds vectorize on every baseline and need no instruction that a CPU may lack.
#pragma once
#include <bit>
#include <cstdint>

namespace tokenmill {

// e^x. Relative error below 1e-15 for -700 <= x <= 700; x is clamped to that range first.
inline double exp_fixed(double x) {
  x = x < -700.0 ? -700.0 : x;
  x = x > 700.0 ? 700.0 : x;
  // x = n ln2 + r with |r| <= ln2/2; adding 1.5 * 2^52 rounds to the nearest integer, ties to even.
  constexpr double kRound = 6755399441055744.0;
  const double shifted = x * 1.4426950408889634074 + kRound;
  const double n = shifted - kRound;
  // ln2 in two parts; the high part has 32 trailing zero bits, so n * high is exact for |n| < 2^11.
  double r = x - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  // Taylor series to r^13/13!: the remainder is below 2^-57 on |r| <= 0.35.
  double p = 1.6059043836821613e-10;
  p = p * r + 2.08767569878680990e-9;
  p = p * r + 2.50521083854417188e-8;
  p = p * r + 2.75573192239858907e-7;
  p = p * r + 2.75573192239858907e-6;
  p = p * r + 2.48015873015873016e-5;
  p = p * r + 1.98412698412698413e-4;
  p = p * r + 1.38888888888888889e-3;
  p = p * r + 8.33333333333333333e-3;
  p = p * r + 4.16666666666666667e-2;
  p = p * r + 1.66666666666666667e-1;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // The low bits of `shifted` hold n; moved into the exponent field they multiply by 2^n.
  const uint64_t exponent = std::bit_cast<uint64_t>(shifted) << 52;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(p) + exponent);
}

// Natural logarithm of a normal positive x. Relative error below 1e-15 away from 1, absolute below 1e-16 near it.
inline double log_fixed(double x) {
  // x = 2^e m with m in [sqrt(1/2), sqrt(2))
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCDULL;
  const uint64_t offset = bits - kSqrtHalf;
  const int64_t e = static_cast<int64_t>(offset) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(e) << 52));
  // ln m = 2 atanh(s), s = (m-1)/(m+1), |s| <= 0.1716: the series to s^21 leaves less than 2^-56.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 21.0;
  p = p * z + 1.0 / 19.0;
  p = p * z + 1.0 / 17.0;
  p = p * z + 1.0 / 15.0;
  p = p * z + 1.0 / 13.0;
  p = p * z + 1.0 / 11.0;
  p = p * z + 1.0 / 9.0;
  p = p * z + 1.0 / 7.0;
  p = p * z + 1.0 / 5.0;
  p = p * z + 1.0 / 3.0;
  const double tail = 2.0 * s * z * p;
  const double exponent = static_cast<double>(e);
  return exponent * 6.93147180369123816490e-01 + (2.0 * s + (tail + exponent * 1.90821492927058770002e-10));
}

}  // namespace tokenmill
