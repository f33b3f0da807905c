#include <cstring>

#include "kernels/reference/scalar_math.h"
#include "kernels/reference/weight_group.h"
#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

int32_t dot(const int32_t* w, const int8_t* a, int count) {
  int32_t sum = 0;
  for (int i = 0; i < count; ++i) {
    sum += w[i] * a[i];
  }
  return sum;
}

// One group's step of the accumulation for one token.
float accumulate_group(const WeightGroup& w, WeightFormat format, const int8_t* a, float activation_scale,
                       const int16_t* half_sums, float sum) {
  if (format == WeightFormat::q6_k) {  // each half group has a scale of its own: two steps
    for (int half = 0; half < 2; ++half) {
      const int first = half * kHalfGroupSize;
      const auto product = static_cast<float>(dot(w.q + first, a + first, kHalfGroupSize));
      sum = fma(product, w.scale[half] * activation_scale, sum);
    }
    return sum;
  }
  sum = fma(static_cast<float>(dot(w.q, a, kGroupSize)), w.scale[0] * activation_scale, sum);
  if (format_info(format).has_min) {
    const auto activation_sum = static_cast<float>(half_sums[0] + half_sums[1]);
    sum = fma(w.offset, activation_scale * activation_sum, sum);
  }
  return sum;
}

void matmul_integer(const PackedMatrix& w, const Activations& x, int64_t row_begin, int64_t row_end, float* y,
                    int64_t y_stride) {
  const int64_t groups = w.k / kGroupSize;
  for (int64_t row = row_begin; row < row_end && row < w.rows; ++row) {
    const uint8_t* file_row = w.data + static_cast<uint64_t>(row) * w.panel_bytes;
    for (int64_t token = 0; token < x.rows; ++token) {
      y[token * y_stride + row] = 0.0F;
    }
    for (int64_t group = 0; group < groups; ++group) {
      const WeightGroup weights = decode_group(w.format, file_row, group);
      for (int64_t token = 0; token < x.rows; ++token) {
        const int64_t at = token * groups + group;
        float& sum = y[token * y_stride + row];
        sum = accumulate_group(weights, w.format, x.q + at * kGroupSize, x.scale[at], x.half_sums + 2 * at, sum);
      }
    }
  }
}

float load_float(WeightFormat format, const uint8_t* row, int64_t i) {
  if (format == WeightFormat::f32) {
    float value = 0.0F;
    std::memcpy(&value, row + 4 * i, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, row + 2 * i, sizeof bits);
  return format == WeightFormat::f16 ? half_to_float(bits) : bfloat_to_float(bits);
}

void matmul_float(const PackedMatrix& w, const Activations& x, int64_t row_begin, int64_t row_end, float* y,
                  int64_t y_stride) {
  for (int64_t row = row_begin; row < row_end && row < w.rows; ++row) {
    const uint8_t* file_row = w.data + static_cast<uint64_t>(row) * w.panel_bytes;
    for (int64_t token = 0; token < x.rows; ++token) {
      float sum = 0.0F;
      for (int64_t i = 0; i < w.k; ++i) {
        sum = fma(load_float(w.format, file_row, i), x.f32[token * x.k + i], sum);
      }
      y[token * y_stride + row] = sum;
    }
  }
}

}  // namespace

#define TOKENMILL_DEFINE_MATMUL(format, implementation)                                                               \
  void matmul_##format(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y, \
                       int64_t y_stride) {                                                                            \
    implementation(w, x, panel_begin, panel_end, y, y_stride);                                                        \
  }
TOKENMILL_DEFINE_MATMUL(f32, matmul_float)
TOKENMILL_DEFINE_MATMUL(f16, matmul_float)
TOKENMILL_DEFINE_MATMUL(bf16, matmul_float)
TOKENMILL_DEFINE_MATMUL(q4_0, matmul_integer)
TOKENMILL_DEFINE_MATMUL(q4_1, matmul_integer)
TOKENMILL_DEFINE_MATMUL(q5_0, matmul_integer)
TOKENMILL_DEFINE_MATMUL(q5_1, matmul_integer)
TOKENMILL_DEFINE_MATMUL(q8_0, matmul_integer)
TOKENMILL_DEFINE_MATMUL(q4_k, matmul_integer)
TOKENMILL_DEFINE_MATMUL(q5_k, matmul_integer)
TOKENMILL_DEFINE_MATMUL(q6_k, matmul_integer)
TOKENMILL_DEFINE_MATMUL(iq4_nl, matmul_integer)
#undef TOKENMILL_DEFINE_MATMUL

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
