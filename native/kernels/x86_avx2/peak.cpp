// What AVX2 and FMA can multiply at most, in the forms in which the matrix products use them.
#include <immintrin.h>

#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

// The compiler must not know the value, so that it can neither drop nor hoist what is computed from it.
template <class Vector>
static inline void hide(Vector& value) {
  __asm__ volatile("" : "+x"(value));
}

// Groups of 32 along K of 8 rows, for six tokens side by side: eight pair products added in int16, then widened once to
// the int32 sums.
int64_t int8_groups(int64_t rounds) {
  constexpr int kTokens = 6;
  constexpr int kProducts = 8;
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i activations = _mm256_set1_epi8(-5);
  __m256i weights = _mm256_set1_epi8(3);
  __m256i sums[kTokens] = {};
  for (int64_t round = 0; round < rounds; ++round) {
    __m256i pairs[kTokens] = {};
#pragma GCC unroll 8
    for (int i = 0; i < kProducts; ++i) {
#pragma GCC unroll 6
      for (__m256i& pair : pairs) {
        hide(weights);
        pair = _mm256_add_epi16(pair, _mm256_maddubs_epi16(weights, activations));
        hide(pair);
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < kTokens; ++i) sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs[i], ones));
  }
  for (__m256i& sum : sums) hide(sum);
  return rounds * kTokens * kProducts * 32;
}

int64_t int8_products(int64_t rounds) {
  constexpr int kProducts = 16;
  __m256i weights = _mm256_set1_epi8(3);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kProducts; ++i) {
      hide(weights);
      __m256i pairs = _mm256_maddubs_epi16(weights, weights);
      hide(pairs);
    }
  }
  return rounds * kProducts * 32;
}

int64_t float_sums(int64_t rounds) {
  constexpr int kChains = 12;
  const __m256 factor = _mm256_set1_ps(0.5F);
  __m256 sums[kChains];
  for (__m256& sum : sums) {
    sum = _mm256_setzero_ps();
    hide(sum);  // chains that begin alike could be computed once for all
  }
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, factor, factor);
  }
  for (__m256& sum : sums) hide(sum);
  return rounds * kChains * 8;
}

}  // namespace

constinit const PeakLoop peak_loops[] = {
    {"int8", "vpmaddubsw + vpaddw, vpmaddwd + vpaddd per group of 32", int8_groups},
    {"int8_multiply", "vpmaddubsw", int8_products},
    {"fp32", "vfmadd ymm", float_sums},
    {},
};

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
