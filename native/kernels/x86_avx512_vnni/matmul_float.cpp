// Float weights: lane = output row, k ascending, one fma each. The running sums of a tile of tokens stay in registers
// over the whole of K; few tokens take several panels side by side, because one fma chain per vector would wait for
// itself.
#include <immintrin.h>

#include "kernels/shared/matmul_panel16-inl.h"
#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

// The 16 rows of k and k + 1; k must be even.
struct WeightPair {
  __m512 first;
  __m512 second;
};

template <WeightFormat kFormat>
TOKENMILL_INLINE __m512 load_one(const uint8_t* panel, int64_t k) {
  if constexpr (kFormat == WeightFormat::f32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(panel) + k * kRowsPerPanel);
  } else {
    static_assert(kFormat == WeightFormat::f16);
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + k * kRowsPerPanel * 2)));
  }
}

template <WeightFormat kFormat>
TOKENMILL_INLINE WeightPair load_pair(const uint8_t* panel, int64_t k) {
  if constexpr (kFormat == WeightFormat::bf16) {
    const __m512i both = _mm512_loadu_si512(panel + k * kRowsPerPanel * 2);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))))};
  } else {
    return {load_one<kFormat>(panel, k), load_one<kFormat>(panel, k + 1)};
  }
}

// The last k of an odd K.
template <WeightFormat kFormat>
TOKENMILL_INLINE __m512 load_last(const uint8_t* panel, int64_t k) {
  if constexpr (kFormat == WeightFormat::bf16) {
    return load_pair<kFormat>(panel, k).first;  // stored as a pair with a zero
  } else {
    return load_one<kFormat>(panel, k);
  }
}

template <int T>
TOKENMILL_INLINE void multiply(__m512 w, const float* x, int64_t x_stride, __m512 (&sums)[T]) {
  unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
    const int t = index_t.value;
    sums[t] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[t * x_stride]), sums[t]);
  });
}

// kPanels panels side by side, T tokens. `lanes`: rows from the first panel's first one to the matrix's end.
template <WeightFormat kFormat, int T, int kPanels>
__attribute__((noinline)) void float_tile(const uint8_t* panel, uint64_t panel_stride, int64_t k, const float* x,
                                          int64_t lanes, float* y, int64_t y_stride) {
  __m512 sums[kPanels][T];
  unrolled<0, kPanels>([&](auto index_p) TOKENMILL_LAMBDA {
    const int p = index_p.value;
    unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
      const int t = index_t.value;
      sums[p][t] = _mm512_setzero_ps();
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
      multiply<T>(load_last<kFormat>(panel + static_cast<uint64_t>(p) * panel_stride, k - 1), x + k - 1, k, sums[p]);
    });
  }
  with_sums<kPanels * kRowsPerPanel>(y, y_stride, T, lanes, true, [&](float* to, int64_t stride) {
    unrolled<0, kPanels>([&](auto index_p) TOKENMILL_LAMBDA {
      const int p = index_p.value;
      unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
        const int t = index_t.value;
        _mm512_storeu_ps(to + t * stride + p * kRowsPerPanel, sums[p][t]);
      });
    });
  });
}

template <WeightFormat kFormat>
void matmul_float(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y,
                  int64_t y_stride) {
  const PanelRange panels{w, panel_begin, min64(panel_end, ceil_div(w.rows, kRowsPerPanel))};
  const int64_t tiles = ceil_div(x.rows, kMaxTileTokens);
  constexpr int64_t kMostPanels = 4;
  for (int64_t p = panels.begin; p < panels.end;) {
    const bool wide = panels.end - p >= kMostPanels;
    for (int64_t i = 0; i < tiles; ++i) {
      const TokenSpan span = even_span(x.rows, i, tiles);
      const float* from = x.f32 + span.begin * x.k;
      float* to = y + span.begin * y_stride + p * kRowsPerPanel;
      dispatch_tile<kMaxTileTokens, 1>(static_cast<int>(span.size), [&](auto t) {
        constexpr int kTokens = decltype(t)::value;
        if (wide) {
          float_tile<kFormat, kTokens, kMostPanels>(panels.panel(p), w.panel_bytes, w.k, from, panels.lanes(p), to,
                                                    y_stride);
        } else {
          float_tile<kFormat, kTokens, 1>(panels.panel(p), w.panel_bytes, w.k, from, panels.lanes(p), to, y_stride);
        }
      });
    }
    p += wide ? kMostPanels : 1;
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
