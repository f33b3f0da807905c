// Sixteen float lanes in one 512-bit register: the operations that the shared row and attention code needs.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

struct Vec16 {
  __m512 v;
};

// Attention tiles: at most so many queries, and about so many sums of 16 lanes, one register each, of 32, at once.
constexpr int kMaxQueryTile = 8;
constexpr int kTileVectors = 16;

static inline Vec16 zero16() { return {_mm512_setzero_ps()}; }
static inline Vec16 broadcast16(float value) { return {_mm512_set1_ps(value)}; }
static inline Vec16 load16(const float* from) { return {_mm512_loadu_ps(from)}; }
static inline void store16(float* to, Vec16 v) { _mm512_storeu_ps(to, v.v); }

static inline Vec16 load_half16(const uint16_t* from) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}

// Round to nearest, ties to even.
static inline void store_half16(uint16_t* to, Vec16 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(v.v, _MM_FROUND_TO_NEAREST_INT));
}

static inline Vec16 add16(Vec16 a, Vec16 b) { return {_mm512_add_ps(a.v, b.v)}; }
static inline Vec16 sub16(Vec16 a, Vec16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
static inline Vec16 mul16(Vec16 a, Vec16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
static inline Vec16 div16(Vec16 a, Vec16 b) { return {_mm512_div_ps(a.v, b.v)}; }

// a * b + c and a * b - c with one rounding.
static inline Vec16 fma16(Vec16 a, Vec16 b, Vec16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
static inline Vec16 fms16(Vec16 a, Vec16 b, Vec16 c) { return {_mm512_fmsub_ps(a.v, b.v, c.v)}; }

// a > b ? a : b, so a NaN in either gives b.
static inline Vec16 max16(Vec16 a, Vec16 b) { return {_mm512_max_ps(a.v, b.v)}; }
// a < b ? a : b, so a NaN in either gives b.
static inline Vec16 min16(Vec16 a, Vec16 b) { return {_mm512_min_ps(a.v, b.v)}; }

static inline __m256 lower_half(__m512 v) { return _mm512_castps512_ps256(v); }
static inline __m256 upper_half(__m512 v) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1)); }

// Folds the lanes 8-4-2-1.
static inline float fold16(Vec16 v) {
  const __m256 eight = _mm256_add_ps(lower_half(v.v), upper_half(v.v));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The largest lane; no lane is NaN.
static inline float largest16(Vec16 v) {
  const __m256 eight = _mm256_max_ps(lower_half(v.v), upper_half(v.v));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Lanes begin .. end - 1 of `inside`, the others of `outside`.
static inline Vec16 select_range16(int begin, int end, Vec16 inside, Vec16 outside) {
  const uint32_t below_end = end >= 16 ? 0xFFFFU : (1U << (end > 0 ? end : 0)) - 1U;
  const uint32_t below_begin = begin >= 16 ? 0xFFFFU : (1U << (begin > 0 ? begin : 0)) - 1U;
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(below_end & ~below_begin), outside.v, inside.v)};
}

// 2^n for lanes that hold n + 1.5 * 2^23, n in -126..127.
static inline Vec16 power_of_two16(Vec16 shifted) {
  // The subtraction of the constant's bits and the addition of the exponent's bias in one; the shift drops the rest.
  const __m512i bias = _mm512_set1_epi32(127 - 0x4B400000);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_castps_si512(shifted.v), bias), 23))};
}

// The largest magnitude among 32 floats, as its bits: 0x7F800000 or more when one is infinite or NaN.
static inline uint32_t largest_magnitude32(const float* x) {
  const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF);
  const __m512i first = _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x)), mask);
  const __m512i second = _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x + 16)), mask);
  const __m512i sixteen = _mm512_max_epi32(first, second);
  const __m256i eight = _mm256_max_epi32(_mm512_castsi512_si256(sixteen), _mm512_extracti64x4_epi64(sixteen, 1));
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xB1))));
}

// Stores the nearest integers (ties to even) of lanes within -127..127 and returns their sum.
static inline int32_t store_int8_16(int8_t* to, Vec16 v) {
  const __m512i integers = _mm512_cvtps_epi32(v.v);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(integers));
  const __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(integers), _mm512_extracti64x4_epi64(integers, 1));
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
