// Functions over sixteen lanes in the fixed operation order of docs/numerics.md. Include the set's vec16.h first.
#pragma once
#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

static inline float fma1(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// The first `count` (< 16) values, and zero in the other lanes.
static inline Vec16 load_first16(const float* from, int64_t count) {
  float lanes[16] = {};
  for (int64_t i = 0; i < count; ++i) {
    lanes[i] = from[i];
  }
  return load16(lanes);
}

// Stores the first `count` (< 16) lanes.
static inline void store_first16(float* to, int64_t count, Vec16 v) {
  float lanes[16];
  store16(lanes, v);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = lanes[i];
  }
}

// As load_first16, from fp16.
static inline Vec16 load_first_half16(const uint16_t* from, int64_t count) {
  uint16_t lanes[16] = {};
  for (int64_t i = 0; i < count; ++i) {
    lanes[i] = from[i];
  }
  return load_half16(lanes);
}

// e^x for x clamped to [-87, 88]; a NaN stays a NaN.
static inline Vec16 exp16(Vec16 x) {
  const Vec16 magic = broadcast16(12582912.0F);  // 1.5 * 2^23
  x = max16(broadcast16(-87.0F), x);
  x = min16(broadcast16(88.0F), x);
  const Vec16 t = fma16(x, broadcast16(1.44269504F), magic);
  const Vec16 n = sub16(t, magic);
  Vec16 r = fma16(n, broadcast16(-0.693145752F), x);
  r = fma16(n, broadcast16(-1.42860677e-6F), r);
  Vec16 p = broadcast16(1.3888889e-3F);
  p = fma16(p, r, broadcast16(8.3333333e-3F));
  p = fma16(p, r, broadcast16(4.1666667e-2F));
  p = fma16(p, r, broadcast16(0.16666667F));
  p = fma16(p, r, broadcast16(0.5F));
  p = fma16(p, mul16(r, r), r);
  p = add16(p, broadcast16(1.0F));
  return mul16(p, power_of_two16(t));
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
