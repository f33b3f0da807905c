#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/reference/scalar_math.h"
#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

constexpr uint32_t kExponentMask = 0x7F800000U;

bool all_finite(const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if ((std::bit_cast<uint32_t>(x[i]) & kExponentMask) == kExponentMask) {
      return false;
    }
  }
  return true;
}

void quantize_group(const float* x, int8_t* q, float* scale, int16_t* half_sums) {
  float largest = 0.0F;
  for (int i = 0; i < kGroupSize; ++i) {
    const float magnitude = std::fabs(x[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  // Below about 3.7e-37 the inverse overflows: such a group counts as zero.
  const float inverse = 127.0F / largest;
  const bool zero = largest == 0.0F || (std::bit_cast<uint32_t>(inverse) & kExponentMask) == kExponentMask;
  *scale = zero ? 0.0F : largest / 127.0F;
  half_sums[0] = 0;
  half_sums[1] = 0;
  for (int i = 0; i < kGroupSize; ++i) {
    float rounded = zero ? 0.0F : round_to_integer(x[i] * inverse);
    rounded = rounded > 127.0F ? 127.0F : rounded;
    rounded = rounded < -127.0F ? -127.0F : rounded;
    q[i] = static_cast<int8_t>(rounded);
    half_sums[i / kHalfGroupSize] = static_cast<int16_t>(half_sums[i / kHalfGroupSize] + q[i]);
  }
}

float silu(float g) { return g / (1.0F + exp(-g)); }

float gelu_tanh(float g) {
  const float u = 0.7978845608F * (g + 0.044715F * g * g * g);
  const float tanh_u = 1.0F - 2.0F / (exp(2.0F * u) + 1.0F);
  return (0.5F * g) * (1.0F + tanh_u);
}

}  // namespace

void quantize_rows(const float* x, int64_t x_stride, int64_t rows, int64_t k, QuantizedOut out, uint8_t* nonfinite) {
  const int64_t groups = k / kGroupSize;
  for (int64_t row = 0; row < rows; ++row) {
    const float* values = x + row * x_stride;
    const bool finite = all_finite(values, k);
    nonfinite[row] = finite ? 0 : 1;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t at = row * groups + group;
      int8_t* q = out.q + at * kGroupSize;
      if (finite) {
        quantize_group(values + group * kGroupSize, q, out.scale + at, out.half_sums + 2 * at);
      } else {
        std::memset(q, 0, kGroupSize);
        out.scale[at] = 0.0F;
        out.half_sums[2 * at] = 0;
        out.half_sums[2 * at + 1] = 0;
      }
    }
  }
}

void rms_norm(const float* x, int64_t x_stride, const float* weight, float epsilon, int64_t rows, int64_t n, float* y,
              int64_t y_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * x_stride;
    float* out = y + row * y_stride;
    float lane[16] = {};
    for (int64_t i = 0; i < n; ++i) {
      lane[i % 16] = fma(in[i], in[i], lane[i % 16]);
    }
    const float mean = fold_lanes(lane) / static_cast<float>(n);
    const float inverse = 1.0F / std::sqrt(mean + epsilon);
    for (int64_t i = 0; i < n; ++i) {
      out[i] = (in[i] * inverse) * weight[i];
    }
  }
}

void rope(float* x, int64_t head_count, int64_t head_dim, int64_t rotary_dim, RopeStyle style, const float* cos,
          const float* sin) {
  if (style == RopeStyle::none) {
    return;
  }
  const int64_t pairs = rotary_dim / 2;
  for (int64_t head = 0; head < head_count; ++head) {
    float* values = x + head * head_dim;
    for (int64_t i = 0; i < pairs; ++i) {
      float& first = style == RopeStyle::half ? values[i] : values[2 * i];
      float& second = style == RopeStyle::half ? values[i + pairs] : values[2 * i + 1];
      const float a = first;
      const float b = second;
      first = fma(a, cos[i], -(b * sin[i]));
      second = fma(b, cos[i], a * sin[i]);
    }
  }
}

void gated_activation(Activation activation, const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float activated = activation == Activation::silu ? silu(gate[i]) : gelu_tanh(gate[i]);
    out[i] = activated * up[i];
  }
}

void add(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    x[i] += y[i];
  }
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
