#include "decoder/rope_table.h"

#include <bit>
#include <cstddef>

#include "decoder/scalar_math.h"

namespace tokenmill {

SinCos sin_cos_fixed(double x) {
  // x = n pi/2 + r, |r| <= pi/4. pi/2 in three parts whose first two have 33 significant bits, so that n * part is
  // exact for |n| < 2^20; beyond that the error grows to about |n| 2^-86. Adding 1.5 * 2^52 rounds to nearest, ties to
  // even.
  constexpr double kRound = 6755399441055744.0;
  const double shifted = x * 0.63661977236758134308 + kRound;
  const double n = shifted - kRound;
  double r = x - n * 1.57079632673412561417e+00;
  r = r - n * 6.07710050630396597660e-11;
  r = r - n * 2.02226624879595063154e-21;
  const double z = r * r;
  // Taylor series to r^17/17! and r^18/18!: the remainders are below 2^-60 on |r| <= pi/4.
  double s = 2.81145725434552076320e-15;
  s = s * z - 7.64716373181981647590e-13;
  s = s * z + 1.60590438368216145994e-10;
  s = s * z - 2.50521083854417187751e-8;
  s = s * z + 2.75573192239858906526e-6;
  s = s * z - 1.98412698412698412698e-4;
  s = s * z + 8.33333333333333333333e-3;
  s = s * z - 1.66666666666666666667e-1;
  const double sin_r = r + r * z * s;
  double c = -1.56192069685862264622e-16;
  c = c * z + 4.77947733238738529744e-14;
  c = c * z - 1.14707455977297247139e-11;
  c = c * z + 2.08767569878680989792e-9;
  c = c * z - 2.75573192239858906526e-7;
  c = c * z + 2.48015873015873015873e-5;
  c = c * z - 1.38888888888888888889e-3;
  c = c * z + 4.16666666666666666667e-2;
  c = c * z - 0.5;
  const double cos_r = 1.0 + z * c;
  // The low bits of `shifted` hold n; n mod 4 says which quarter turn was taken off.
  switch (std::bit_cast<uint64_t>(shifted) & 3U) {
    case 0:
      return {sin_r, cos_r};
    case 1:
      return {cos_r, -sin_r};
    case 2:
      return {-sin_r, -cos_r};
    default:
      return {-cos_r, sin_r};
  }
}

RopeTable::RopeTable(const RopePlan& plan, const float* freq_factors) : position_scale_(plan.position_scale) {
  if (plan.style == RopeStyle::none) return;
  const double log_base = log_fixed(plan.base);
  for (int32_t i = 0; i < plan.rotary_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(plan.rotary_dim);
    const double factor = freq_factors == nullptr ? 1.0 : static_cast<double>(freq_factors[i]);
    inverse_frequencies_.push_back(exp_fixed(exponent * log_base) / factor);
  }
}

void RopeTable::fill(int64_t position, float* cos, float* sin) const {
  const double scaled = static_cast<double>(position) * position_scale_;
  for (std::size_t i = 0; i < inverse_frequencies_.size(); ++i) {
    const SinCos value = sin_cos_fixed(scaled * inverse_frequencies_[i]);
    cos[i] = static_cast<float>(value.cos);
    sin[i] = static_cast<float>(value.sin);
  }
}

}  // namespace tokenmill
