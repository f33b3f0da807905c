// The reference set's scalar arithmetic against its definitions: fp16 both ways, rounding, and the exponential's error.
#include <bit>
#include <cmath>
#include <limits>

#include "check.h"
#include "kernels/reference/scalar_math.h"

namespace {

using tokenmill::reference::float_to_half;
using tokenmill::reference::half_to_float;
using tokenmill::test::expect;

constexpr double kExpUlpLimit = 3.0;

double half_by_definition(uint32_t half) {
  const double sign = (half & 0x8000U) != 0 ? -1.0 : 1.0;
  const auto exponent = static_cast<int>((half >> 10) & 0x1FU);
  const auto mantissa = static_cast<double>(half & 0x3FFU);
  return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024.0 + mantissa, exponent - 25);
}

void check_half_to_float() {
  for (uint32_t half = 0; half < 0x10000U; ++half) {
    const float value = half_to_float(static_cast<uint16_t>(half));
    const std::string what = "fp16 " + std::to_string(half);
    if ((half & 0x7C00U) != 0x7C00U) {
      expect(static_cast<double>(value) == half_by_definition(half) && std::signbit(value) == ((half & 0x8000U) != 0),
             what);
    } else if ((half & 0x3FFU) == 0) {
      expect(std::isinf(value) && std::signbit(value) == ((half & 0x8000U) != 0), what);
    } else {
      expect(std::isnan(value), what);
    }
  }
}

// Every half, the point midway to the next one (a tie goes to the even one), and the floats just beside that point.
void check_float_to_half() {
  for (uint32_t half = 0; half < 0x7C00U; ++half) {
    const std::string what = "rounding to fp16 near " + std::to_string(half);
    const auto lower = static_cast<float>(half_by_definition(half));
    const double next = half + 1 == 0x7C00U ? 65536.0 : half_by_definition(half + 1);
    const auto middle = static_cast<float>((static_cast<double>(lower) + next) / 2);
    const uint32_t even = half % 2 == 0 ? half : half + 1;
    for (const uint32_t sign : {0U, 0x8000U}) {
      const float factor = sign == 0 ? 1.0F : -1.0F;
      expect(float_to_half(factor * lower) == (sign | half), what);
      expect(float_to_half(factor * middle) == (sign | even), what);
      expect(float_to_half(factor * std::nextafter(middle, 0.0F)) == (sign | half), what);
      expect(float_to_half(factor * std::nextafter(middle, 1e9F)) == (sign | (half + 1)), what);
    }
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  expect(float_to_half(1e30F) == 0x7C00U && float_to_half(-kInfinity) == 0xFC00U, "overflow to infinity");
  expect((float_to_half(std::nanf("")) & 0x7E00U) == 0x7E00U, "NaN stays a NaN");
}

void check_rounding() {
  for (int32_t quarter = -1000; quarter <= 1000; ++quarter) {
    const float value = static_cast<float>(quarter) * 0.25F;
    expect(tokenmill::reference::round_to_integer(value) == std::nearbyint(value),
           "nearest integer of " + std::to_string(value));
  }
}

void check_exp() {
  double worst = 0.0;
  for (int32_t i = -455000; i <= 460000; ++i) {  // -86.9 .. 87.9
    const float x = static_cast<float>(i) * 0.000191F;
    const float got = tokenmill::reference::exp(x);
    const long double want = std::exp(static_cast<long double>(x));
    const auto nearest = static_cast<float>(want);
    const double ulp = static_cast<double>(std::nextafter(nearest, 1e38F)) - static_cast<double>(nearest);
    const double error = std::abs(static_cast<double>(static_cast<long double>(got) - want)) / ulp;
    worst = error > worst ? error : worst;
  }
  std::printf("exp: at most %.2f ulp\n", worst);
  expect(worst <= kExpUlpLimit, "exp is off by " + std::to_string(worst) + " ulp");
  expect(tokenmill::reference::exp(0.0F) == 1.0F, "exp(0)");
  expect(tokenmill::reference::exp(-1e30F) == tokenmill::reference::exp(-87.0F), "exp below its range");
  expect(tokenmill::reference::exp(1e30F) == tokenmill::reference::exp(88.0F), "exp above its range");
  expect(std::isnan(tokenmill::reference::exp(std::nanf(""))), "exp of NaN");
}

}  // namespace

int main() {
  check_half_to_float();
  check_float_to_half();
  check_rounding();
  check_exp();
  return tokenmill::test::finish();
}
