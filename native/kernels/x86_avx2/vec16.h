// Sixteen virtual float lanes in two 256-bit registers: the operations that the shared row and attention code needs.
#pragma once
#include <immintrin.h>

#include <cstdint>

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

struct Vec16 {
  __m256 lo;
  __m256 hi;
};

// Attention tiles: at most so many queries, and about so many sums of 16 lanes, two registers each, of 16, at once.
constexpr int kMaxQueryTile = 6;
constexpr int kTileVectors = 4;

static inline Vec16 zero16() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }

static inline Vec16 broadcast16(float value) {
  const __m256 all = _mm256_set1_ps(value);
  return {all, all};
}

static inline Vec16 load16(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }

static inline void store16(float* to, Vec16 v) {
  _mm256_storeu_ps(to, v.lo);
  _mm256_storeu_ps(to + 8, v.hi);
}

static inline Vec16 load_half16(const uint16_t* from) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 8)))};
}

// Round to nearest, ties to even.
static inline void store_half16(uint16_t* to, Vec16 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), _mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT));
}

static inline Vec16 add16(Vec16 a, Vec16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
static inline Vec16 sub16(Vec16 a, Vec16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
static inline Vec16 mul16(Vec16 a, Vec16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
static inline Vec16 div16(Vec16 a, Vec16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }

// a * b + c and a * b - c with one rounding.
static inline Vec16 fma16(Vec16 a, Vec16 b, Vec16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
static inline Vec16 fms16(Vec16 a, Vec16 b, Vec16 c) {
  return {_mm256_fmsub_ps(a.lo, b.lo, c.lo), _mm256_fmsub_ps(a.hi, b.hi, c.hi)};
}

// a > b ? a : b, so a NaN in either gives b.
static inline Vec16 max16(Vec16 a, Vec16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
// a < b ? a : b, so a NaN in either gives b.
static inline Vec16 min16(Vec16 a, Vec16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }

// Folds the lanes 8-4-2-1.
static inline float fold16(Vec16 v) {
  const __m256 eight = _mm256_add_ps(v.lo, v.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The largest lane; no lane is NaN.
static inline float largest16(Vec16 v) {
  const __m256 eight = _mm256_max_ps(v.lo, v.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Lanes begin .. end - 1 of `inside`, the others of `outside`.
static inline Vec16 select_range16(int begin, int end, Vec16 inside, Vec16 outside) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i index_hi = _mm256_add_epi32(index, _mm256_set1_epi32(8));
  const __m256i before = _mm256_set1_epi32(begin - 1);
  const __m256i after = _mm256_set1_epi32(end);
  const __m256i lo = _mm256_and_si256(_mm256_cmpgt_epi32(index, before), _mm256_cmpgt_epi32(after, index));
  const __m256i hi = _mm256_and_si256(_mm256_cmpgt_epi32(index_hi, before), _mm256_cmpgt_epi32(after, index_hi));
  return {_mm256_blendv_ps(outside.lo, inside.lo, _mm256_castsi256_ps(lo)),
          _mm256_blendv_ps(outside.hi, inside.hi, _mm256_castsi256_ps(hi))};
}

// 2^n for lanes that hold n + 1.5 * 2^23, n in -126..127.
static inline Vec16 power_of_two16(Vec16 shifted) {
  // The subtraction of the constant's bits and the addition of the exponent's bias in one; the shift drops the rest.
  const __m256i bias = _mm256_set1_epi32(127 - 0x4B400000);
  const __m256i lo = _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(shifted.lo), bias), 23);
  const __m256i hi = _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(shifted.hi), bias), 23);
  return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)};
}

// The largest magnitude among 32 floats, as its bits: 0x7F800000 or more when one is infinite or NaN.
static inline uint32_t largest_magnitude32(const float* x) {
  const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i eight = _mm256_setzero_si256();
  for (int i = 0; i < 32; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    eight = _mm256_max_epi32(eight, _mm256_and_si256(bits, mask));
  }
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xB1))));
}

// Stores the nearest integers (ties to even) of lanes within -127..127 and returns their sum.
static inline int32_t store_int8_16(int8_t* to, Vec16 v) {
  const __m256i lo = _mm256_cvtps_epi32(v.lo);
  const __m256i hi = _mm256_cvtps_epi32(v.hi);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xD8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
  const __m256i eight = _mm256_add_epi32(lo, hi);
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
