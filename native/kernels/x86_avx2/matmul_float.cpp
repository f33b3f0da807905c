// Float weights: lane = output row, k ascending, one fma each. The running sums of a tile of tokens stay in registers
// over the whole of K; few tokens take several panels side by side, because one fma chain per vector would wait for
// itself.
#include <immintrin.h>

#include "kernels/shared/matmul_panel16-inl.h"
#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

// Two vectors of eight rows for each of two consecutive k.
struct WeightPair {
  __m256 first[2];
  __m256 second[2];
};

TOKENMILL_INLINE __m256 half_vector(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// k must be even.
template <WeightFormat kFormat>
TOKENMILL_INLINE WeightPair load_pair(const uint8_t* panel, int64_t k) {
  WeightPair w;
  unrolled<0, 2>([&](auto index_half) TOKENMILL_LAMBDA {
    const int half = index_half.value;
    if constexpr (kFormat == WeightFormat::f32) {
      const auto* p = reinterpret_cast<const float*>(panel) + k * kRowsPerPanel + 8 * half;
      w.first[half] = _mm256_loadu_ps(p);
      w.second[half] = _mm256_loadu_ps(p + kRowsPerPanel);
    } else if constexpr (kFormat == WeightFormat::f16) {
      const uint8_t* p = panel + (k * kRowsPerPanel + 8 * half) * 2;
      w.first[half] = half_vector(p);
      w.second[half] = half_vector(p + 2 * kRowsPerPanel);
    } else {
      const auto* p = reinterpret_cast<const __m256i*>(panel + (k * kRowsPerPanel + 16 * half) * 2);
      const __m256i both = _mm256_loadu_si256(p);
      w.first[half] = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
      w.second[half] = _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
    }
  });
  return w;
}

// The last k of an odd K.
template <WeightFormat kFormat>
TOKENMILL_INLINE void load_last(const uint8_t* panel, int64_t k, __m256 (&w)[2]) {
  unrolled<0, 2>([&](auto index_half) TOKENMILL_LAMBDA {
    const int half = index_half.value;
    if constexpr (kFormat == WeightFormat::bf16) {
      w[half] = load_pair<kFormat>(panel, k).first[half];  // stored as a pair with a zero
    } else if constexpr (kFormat == WeightFormat::f32) {
      w[half] = _mm256_loadu_ps(reinterpret_cast<const float*>(panel) + k * kRowsPerPanel + 8 * half);
    } else {
      w[half] = half_vector(panel + (k * kRowsPerPanel + 8 * half) * 2);
    }
  });
}

template <int T>
TOKENMILL_INLINE void multiply(const __m256 (&w)[2], const float* x, int64_t x_stride, __m256 (&sums)[T][2]) {
  unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
    const int t = index_t.value;
    const __m256 a = _mm256_set1_ps(x[t * x_stride]);
    sums[t][0] = _mm256_fmadd_ps(w[0], a, sums[t][0]);
    sums[t][1] = _mm256_fmadd_ps(w[1], a, sums[t][1]);
  });
}

// kPanels panels side by side, T tokens. `lanes`: rows from the first panel's first one to the matrix's end.
template <WeightFormat kFormat, int T, int kPanels>
__attribute__((noinline)) void float_tile(const uint8_t* panel, uint64_t panel_stride, int64_t k, const float* x,
                                          int64_t lanes, float* y, int64_t y_stride) {
  __m256 sums[kPanels][T][2];
  unrolled<0, kPanels>([&](auto index_p) TOKENMILL_LAMBDA {
    const int p = index_p.value;
    unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
      const int t = index_t.value;
      sums[p][t][0] = _mm256_setzero_ps();
      sums[p][t][1] = _mm256_setzero_ps();
    });
  });
  for (int64_t i = 0; i + 2 <= k; i += 2) {
    unrolled<0, kPanels>([&](auto index_p) TOKENMILL_LAMBDA {
      const int p = index_p.value;
      const WeightPair w = load_pair<kFormat>(panel + static_cast<uint64_t>(p) * panel_stride, i);
      multiply<T>(w.first, x + i, k, sums[p]);
      multiply<T>(w.second, x + i + 1, k, sums[p]);
    });
  }
  if (k % 2 != 0) {
    unrolled<0, kPanels>([&](auto index_p) TOKENMILL_LAMBDA {
      const int p = index_p.value;
      __m256 w[2];
      load_last<kFormat>(panel + static_cast<uint64_t>(p) * panel_stride, k - 1, w);
      multiply<T>(w, x + k - 1, k, sums[p]);
    });
  }
  unrolled<0, kPanels>([&](auto index_p) TOKENMILL_LAMBDA {
    const int p = index_p.value;
    const int64_t at = p * kRowsPerPanel;
    with_sums<kRowsPerPanel>(y + at, y_stride, T, lanes - at, true, [&](float* to, int64_t stride) {
      unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
        const int t = index_t.value;
        _mm256_storeu_ps(to + t * stride, sums[p][t][0]);
        _mm256_storeu_ps(to + t * stride + 8, sums[p][t][1]);
      });
    });
  });
}

template <WeightFormat kFormat>
void matmul_float(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y,
                  int64_t y_stride) {
  const PanelRange panels{w, panel_begin, min64(panel_end, ceil_div(w.rows, kRowsPerPanel))};
  const int64_t tiles = ceil_div(x.rows, kMaxTileTokens);
  for (int64_t p = panels.begin; p < panels.end;) {
    constexpr int64_t kMostPanels = 4;
    const int64_t side_by_side = x.rows <= 2 && panels.end - p >= kMostPanels ? kMostPanels : 1;
    for (int64_t i = 0; i < tiles; ++i) {
      const TokenSpan span = even_span(x.rows, i, tiles);
      const float* from = x.f32 + span.begin * x.k;
      float* to = y + span.begin * y_stride + p * kRowsPerPanel;
      dispatch_tile<kMaxTileTokens, 1>(static_cast<int>(span.size), [&](auto t) {
        constexpr int kTokens = decltype(t)::value;
        if constexpr (kTokens <= 2) {
          if (side_by_side == kMostPanels) {
            float_tile<kFormat, kTokens, kMostPanels>(panels.panel(p), w.panel_bytes, w.k, from, panels.lanes(p), to,
                                                      y_stride);
            return;
          }
        }
        float_tile<kFormat, kTokens, 1>(panels.panel(p), w.panel_bytes, w.k, from, panels.lanes(p), to, y_stride);
      });
    }
    p += side_by_side;
  }
}

}  // namespace

void matmul_f32(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y,
                int64_t y_stride) {
  matmul_float<WeightFormat::f32>(w, x, panel_begin, panel_end, y, y_stride);
}

void matmul_f16(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y,
                int64_t y_stride) {
  matmul_float<WeightFormat::f16>(w, x, panel_begin, panel_end, y, y_stride);
}

void matmul_bf16(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y,
                 int64_t y_stride) {
  matmul_float<WeightFormat::bf16>(w, x, panel_begin, panel_end, y, y_stride);
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
