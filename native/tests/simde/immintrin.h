// Stands in for the compiler's header when the sources of an AVX-512 set are compiled for an AVX2 machine: AVX2 stays
// the machine's own, AVX-512 comes from SIMDe, and what this SIMDe lacks is spelled out below, one element at a time.
#pragma once
#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <cmath>
#include <cstring>

namespace simde_missing {

static inline __m512i from_lanes(const int32_t (&lanes)[16]) { return _mm512_loadu_si512(lanes); }

static inline __m512 cvtph_ps(__m256i halves) {
  float lanes[16];
  _mm256_storeu_ps(lanes, _mm256_cvtph_ps(_mm256_castsi256_si128(halves)));
  _mm256_storeu_ps(lanes + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)));
  return _mm512_loadu_ps(lanes);
}

static inline __m256i cvtps_ph(__m512 floats) {
  float lanes[16];
  _mm512_storeu_ps(lanes, floats);
  const __m128i low = _mm256_cvtps_ph(_mm256_loadu_ps(lanes), _MM_FROUND_TO_NEAREST_INT);
  const __m128i high = _mm256_cvtps_ph(_mm256_loadu_ps(lanes + 8), _MM_FROUND_TO_NEAREST_INT);
  return _mm256_set_m128i(high, low);
}

// Round to nearest, ties to even; what does not fit gives the smallest integer, as the instruction does.
static inline __m512i cvtps_epi32(__m512 floats) {
  float lanes[16];
  int32_t integers[16];
  _mm512_storeu_ps(lanes, floats);
  for (int i = 0; i < 16; ++i) {
    const float rounded = std::nearbyint(lanes[i]);
    integers[i] = rounded >= -0x1p31F && rounded < 0x1p31F ? static_cast<int32_t>(rounded) : INT32_MIN;
  }
  return from_lanes(integers);
}

static inline __m128i cvtepi32_epi8(__m512i integers) {
  int32_t lanes[16];
  uint8_t bytes[16];
  _mm512_storeu_si512(lanes, integers);
  for (int i = 0; i < 16; ++i) {
    bytes[i] = static_cast<uint8_t>(lanes[i]);
  }
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}

static inline __m512 cvtepi32_ps(__m512i integers) {
  int32_t from[16];
  float lanes[16];
  _mm512_storeu_si512(from, integers);
  for (int i = 0; i < 16; ++i) {
    lanes[i] = static_cast<float>(from[i]);
  }
  return _mm512_loadu_ps(lanes);
}

template <typename Byte>
static inline __m512i extend_bytes(__m128i bytes) {
  Byte from[16];
  int32_t lanes[16];
  std::memcpy(from, &bytes, sizeof from);
  for (int i = 0; i < 16; ++i) {
    lanes[i] = from[i];
  }
  return from_lanes(lanes);
}

// SIMDe has this one, but spelled out at every use it makes the matrix products take minutes to compile.
__attribute__((noinline)) inline __m512i dpbusd_epi32(__m512i sums, __m512i weights, __m512i activations) {
  int32_t lanes[16];
  uint8_t unsigned_bytes[64];
  int8_t signed_bytes[64];
  _mm512_storeu_si512(lanes, sums);
  _mm512_storeu_si512(unsigned_bytes, weights);
  _mm512_storeu_si512(signed_bytes, activations);
  for (int i = 0; i < 64; ++i) {
    lanes[i / 4] += unsigned_bytes[i] * signed_bytes[i];
  }
  return from_lanes(lanes);
}

}  // namespace simde_missing

#define _mm512_cvtph_ps(halves) simde_missing::cvtph_ps(halves)
#define _mm512_cvtps_ph(floats, rounding) simde_missing::cvtps_ph(floats)
#define _mm512_cvtps_epi32(floats) simde_missing::cvtps_epi32(floats)
#define _mm512_cvtepi32_epi8(integers) simde_missing::cvtepi32_epi8(integers)
#define _mm512_cvtepi32_ps(integers) simde_missing::cvtepi32_ps(integers)
#define _mm512_cvtepi8_epi32(bytes) simde_missing::extend_bytes<int8_t>(bytes)
#define _mm512_cvtepu8_epi32(bytes) simde_missing::extend_bytes<uint8_t>(bytes)
#undef _mm512_dpbusd_epi32
#define _mm512_dpbusd_epi32(sums, weights, activations) simde_missing::dpbusd_epi32(sums, weights, activations)
