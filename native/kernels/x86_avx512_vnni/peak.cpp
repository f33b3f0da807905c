// What AVX-512 VNNI can multiply at most, in the forms in which the matrix products use it.
#include <immintrin.h>

#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

// Chains that do not wait for each other (two units of five cycles' latency, and some to spare), each with a start of
// its own: chains that begin alike could be computed once for all.
constexpr int kChains = 12;

// The sums must be used for the compiler to keep the loops; nobody reads it.
volatile float used = 0.0F;

void use(__m512 sum) {
  float lanes[16];
  _mm512_storeu_ps(lanes, sum);
  used = lanes[0];
}

int64_t int8_products(int64_t rounds) {
  const __m512i weights = _mm512_set1_epi8(3);
  const __m512i activations = _mm512_set1_epi8(-5);
  __m512i sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(i);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, weights, activations);
  }
  for (const __m512i& sum : sums) use(_mm512_castsi512_ps(sum));
  return rounds * kChains * 64;
}

int64_t float_sums(int64_t rounds) {
  const __m512 factor = _mm512_set1_ps(0.5F);
  __m512 sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, factor, factor);
  }
  for (const __m512& sum : sums) use(sum);
  return rounds * kChains * 16;
}

}  // namespace

constinit const PeakLoop peak_loops[] = {
    {"int8", "vpdpbusd zmm", int8_products},
    {"fp32", "vfmadd zmm", float_sums},
    {},
};

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
