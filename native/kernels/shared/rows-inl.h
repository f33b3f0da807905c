// Row functions of KernelSet over Vec16. Include the set's vec16.h first; compiled once in each set's namespace.
#pragma once
#include <cstring>

#include "kernels/shared/set_functions-inl.h"
#include "kernels/shared/vec_math-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

static inline float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

constexpr uint32_t kInfinityBits = 0x7F800000U;

// Quantizes one row; returns false when a value is not finite (the outputs are then meaningless).
static inline bool quantize_row(const float* x, int64_t groups, int8_t* q, float* scale, int16_t* half_sums) {
  uint32_t largest_of_row = 0;
  for (int64_t group = 0; group < groups; ++group) {
    const float* values = x + group * kGroupSize;
    int8_t* out = q + group * kGroupSize;
    const uint32_t bits = largest_magnitude32(values);
    largest_of_row = bits > largest_of_row ? bits : largest_of_row;
    const float largest = float_from_bits(bits);
    const float inverse = 127.0F / largest;
    if (bits_of(inverse) >= kInfinityBits) {  // all zero, so small that the inverse overflows, or not finite
      std::memset(out, 0, kGroupSize);
      scale[group] = 0.0F;
      half_sums[2 * group] = 0;
      half_sums[2 * group + 1] = 0;
      continue;
    }
    const Vec16 factor = broadcast16(inverse);
    scale[group] = largest / 127.0F;
    half_sums[2 * group] = static_cast<int16_t>(store_int8_16(out, mul16(load16(values), factor)));
    half_sums[2 * group + 1] = static_cast<int16_t>(store_int8_16(out + 16, mul16(load16(values + 16), factor)));
  }
  return largest_of_row < kInfinityBits;
}

void quantize_rows(const float* x, int64_t x_stride, int64_t rows, int64_t k, QuantizedOut out, uint8_t* nonfinite) {
  const int64_t groups = k / kGroupSize;
  for (int64_t row = 0; row < rows; ++row) {
    int8_t* q = out.q + row * k;
    float* scale = out.scale + row * groups;
    int16_t* half_sums = out.half_sums + row * groups * 2;
    const bool finite = quantize_row(x + row * x_stride, groups, q, scale, half_sums);
    nonfinite[row] = finite ? 0 : 1;
    if (!finite) {
      std::memset(q, 0, static_cast<uint64_t>(k));
      std::memset(scale, 0, static_cast<uint64_t>(groups) * sizeof(float));
      std::memset(half_sums, 0, static_cast<uint64_t>(groups) * 2 * sizeof(int16_t));
    }
  }
}

void rms_norm(const float* x, int64_t x_stride, const float* weight, float epsilon, int64_t rows, int64_t n, float* y,
              int64_t y_stride) {
  const int64_t whole = n / 16 * 16;
  const int64_t rest = n - whole;
  for (int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * x_stride;
    float* out = y + row * y_stride;
    Vec16 sum = zero16();
    for (int64_t i = 0; i < whole; i += 16) {
      const Vec16 v = load16(in + i);
      sum = fma16(v, v, sum);
    }
    if (rest != 0) {  // lanes past the end add +0 to sums that are never -0
      const Vec16 v = load_first16(in + whole, rest);
      sum = fma16(v, v, sum);
    }
    const float mean = fold16(sum) / static_cast<float>(n);
    const float inverse = 1.0F / __builtin_sqrtf(mean + epsilon);
    const Vec16 factor = broadcast16(inverse);
    for (int64_t i = 0; i < whole; i += 16) {
      store16(out + i, mul16(mul16(load16(in + i), factor), load16(weight + i)));
    }
    for (int64_t i = whole; i < n; ++i) {
      out[i] = (in[i] * inverse) * weight[i];
    }
  }
}

static inline void rotate_half(float* first, float* second, int64_t pairs, const float* cos, const float* sin) {
  int64_t i = 0;
  for (; i + 16 <= pairs; i += 16) {
    const Vec16 a = load16(first + i);
    const Vec16 b = load16(second + i);
    const Vec16 c = load16(cos + i);
    const Vec16 s = load16(sin + i);
    store16(first + i, fms16(a, c, mul16(b, s)));
    store16(second + i, fma16(b, c, mul16(a, s)));
  }
  for (; i < pairs; ++i) {
    const float a = first[i];
    const float b = second[i];
    first[i] = fma1(a, cos[i], -(b * sin[i]));
    second[i] = fma1(b, cos[i], a * sin[i]);
  }
}

// The compiler vectorizes this one: no operation of Vec16 takes pairs apart.
static inline void rotate_interleaved(float* __restrict x, int64_t pairs, const float* __restrict cos,
                                      const float* __restrict sin) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = fma1(a, cos[i], -(b * sin[i]));
    x[2 * i + 1] = fma1(b, cos[i], a * sin[i]);
  }
}

void rope(float* x, int64_t head_count, int64_t head_dim, int64_t rotary_dim, RopeStyle style, const float* cos,
          const float* sin) {
  const int64_t pairs = rotary_dim / 2;
  for (int64_t head = 0; head < head_count; ++head) {
    float* values = x + head * head_dim;
    if (style == RopeStyle::half) {
      rotate_half(values, values + pairs, pairs, cos, sin);
    } else if (style == RopeStyle::interleaved) {
      rotate_interleaved(values, pairs, cos, sin);
    }
  }
}

static inline Vec16 silu16(Vec16 g) {
  // exp(-g): the sign is flipped, not subtracted from zero, so that a zero gives the same bits as in scalar code.
  const Vec16 negative = mul16(g, broadcast16(-1.0F));
  return div16(g, add16(broadcast16(1.0F), exp16(negative)));
}

static inline Vec16 gelu_tanh16(Vec16 g) {
  const Vec16 one = broadcast16(1.0F);
  const Vec16 two = broadcast16(2.0F);
  const Vec16 cube = mul16(mul16(mul16(broadcast16(0.044715F), g), g), g);
  const Vec16 u = mul16(broadcast16(0.7978845608F), add16(g, cube));
  const Vec16 tanh_u = sub16(one, div16(two, add16(exp16(mul16(two, u)), one)));
  return mul16(mul16(broadcast16(0.5F), g), add16(one, tanh_u));
}

void gated_activation(Activation activation, const float* gate, const float* up, int64_t n, float* out) {
  const int64_t whole = n / 16 * 16;
  if (activation == Activation::silu) {
    for (int64_t i = 0; i < whole; i += 16) {
      store16(out + i, mul16(silu16(load16(gate + i)), load16(up + i)));
    }
  } else {
    for (int64_t i = 0; i < whole; i += 16) {
      store16(out + i, mul16(gelu_tanh16(load16(gate + i)), load16(up + i)));
    }
  }
  if (whole < n) {
    const Vec16 g = load_first16(gate + whole, n - whole);
    const Vec16 activated = activation == Activation::silu ? silu16(g) : gelu_tanh16(g);
    store_first16(out + whole, n - whole, mul16(activated, load_first16(up + whole, n - whole)));
  }
}

void add(float* x, const float* y, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    store16(x + i, add16(load16(x + i), load16(y + i)));
  }
  for (; i < n; ++i) {
    x[i] += y[i];
  }
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
