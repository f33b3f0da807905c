// Dot kernels of the integer formats with AVX2.
//
// maddubs multiplies unsigned weights with signed activations and adds pairs into int16, saturating. Weights of at most
// six bits cannot saturate a pair (2 * 63 * 127 < 2^15), and int16 additions wrap, so all that counts is that the final
// int16 lane fits: it starts at minus offset * (sum of the activations that this lane sees), which leaves a sum of
// signed weights times activations over 16 elements, at most 16 * 16 * 127 = 32,512 (Q6_K: 8 elements, 8 * 32 * 127).
// Thus one widening madd serves a whole group. Q5_1 and Q5_K have no offset of their own and borrow 16, given back
// after widening. Eight-bit weights (Q8_0, IQ4_NL) would saturate: they are widened to int16 (even and odd bytes) and
// use madd.
#pragma once
#include <immintrin.h>

#include "kernels/shared/matmul_panel16-inl.h"
#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

TOKENMILL_INLINE __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

TOKENMILL_INLINE __m256i broadcast_word(const int32_t* p) { return _mm256_set1_epi32(*p); }

TOKENMILL_INLINE __m256 broadcast_float(const int32_t* p) { return _mm256_castsi256_ps(_mm256_set1_epi32(*p)); }

TOKENMILL_INLINE __m256 load_halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Keeps a sum where it stands: GCC 12 would reorder additions of integers, compute all products of a group first and
// spill them.
TOKENMILL_INLINE __m256i in_order(__m256i sum) {
  __asm__("" : "+x"(sum));
  return sum;
}

// Scales (and minima, as what is added) of a unit, expanded to floats: [group][16 rows]; Q6_K: [half group][16 rows].
struct UnitScales {
  alignas(32) float scale[2 * kGroupsPerUnit * kRowsPerPanel];
  alignas(32) float min[kGroupsPerUnit * kRowsPerPanel];
};

template <WeightFormat kFormat>
TOKENMILL_INLINE void expand_scales(const uint8_t* unit, int groups, float* scale, float* min) {
  constexpr ScaleKind kKind = panel_format(kFormat).scales;
  const uint8_t* from = unit + unit_layout(kFormat, groups).scales;
  if constexpr (kKind == ScaleKind::plain || kKind == ScaleKind::with_min) {
    for (int i = 0; i < 2 * groups; ++i) {
      _mm256_storeu_ps(scale + 8 * i, load_halves(from + 16 * i));
      if constexpr (kKind == ScaleKind::with_min) {
        _mm256_storeu_ps(min + 8 * i, load_halves(from + 32 * groups + 16 * i));
      }
    }
  } else if constexpr (kKind == ScaleKind::superblock_min) {
    const __m256i two_bits = _mm256_set1_epi32(0x30);
    const __m256i four_bits = _mm256_set1_epi32(15);
    for (int half = 0; half < 2; ++half) {
      const uint8_t* low = from + 8 * half;
      __m256i high = load256(from + 128 + 32 * half);
      const __m256 d = load_halves(from + 192 + 16 * half);
      const __m256 dmin = _mm256_xor_ps(load_halves(from + 224 + 16 * half), _mm256_set1_ps(-0.0F));
      // Bits 0..1 to 4..5; later groups follow by shifting right.
      const __m256i lowest = _mm256_slli_epi32(high, 4);
      for (int g = 0; g < kGroupsPerUnit; ++g) {
        const __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(low + 16 * g)));
        const __m256i scale_high = g == 0 ? lowest : _mm256_srli_epi32(high, 4 * g - 4);
        const __m256i min_high = g == 0 ? _mm256_slli_epi32(high, 2) : _mm256_srli_epi32(high, 4 * g - 2);
        const __m256i s = _mm256_or_si256(_mm256_and_si256(bytes, four_bits), _mm256_and_si256(scale_high, two_bits));
        const __m256i m = _mm256_or_si256(_mm256_srli_epi32(bytes, 4), _mm256_and_si256(min_high, two_bits));
        _mm256_storeu_ps(scale + 16 * g + 8 * half, _mm256_mul_ps(d, _mm256_cvtepi32_ps(s)));
        _mm256_storeu_ps(min + 16 * g + 8 * half, _mm256_mul_ps(dmin, _mm256_cvtepi32_ps(m)));
      }
    }
  } else {
    for (int half = 0; half < 2; ++half) {
      const __m256 d = load_halves(from + 256 + 16 * half);
      for (int i = 0; i < 2 * kGroupsPerUnit; ++i) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 16 * i + 8 * half));
        _mm256_storeu_ps(scale + 16 * i + 8 * half, _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))));
      }
    }
  }
}

// The codebook of IQ4_NL plus 128.
TOKENMILL_INLINE __m256i codebook() {
  return _mm256_broadcastsi128_si256(
      _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90, -75, -59, -39, -15));
}

// Weights as they lie in a panel's unit: rows 8 * half .. of elements 4c .. 4c+3 of group g, as unsigned bytes.
template <WeightFormat kFormat>
struct PackedWeights {
  const uint8_t* unit;
  const uint8_t* high;

  TOKENMILL_INLINE __m256i load(int g, int c, int half) const {
    constexpr PanelFormat kPanel = panel_format(kFormat);
    const uint8_t* group = unit + g * kPanel.weight_bytes + 32 * half;
    if constexpr (kFormat == WeightFormat::q8_0) {
      return load256(group + c * kWeightVectorBytes);
    }
    const __m256i pair = load256(group + (c & 3) * kWeightVectorBytes);
    __m256i w = _mm256_and_si256(c < 4 ? pair : _mm256_srli_epi16(pair, 4), _mm256_set1_epi8(15));
    if constexpr (kFormat == WeightFormat::iq4_nl) {
      w = _mm256_shuffle_epi8(codebook(), w);
    }
    if constexpr (kPanel.high_bits == 1) {
      const __m256i bits = load256(high + g * kWeightVectorBytes + 32 * half);
      const __m256i moved = c < 4 ? _mm256_slli_epi16(bits, 4 - c) : _mm256_srli_epi16(bits, c - 4);
      w = _mm256_or_si256(w, _mm256_and_si256(moved, _mm256_set1_epi8(16)));
    }
    if constexpr (kPanel.high_bits == 2) {
      const __m256i bits = load256(high + (2 * g + c / 4) * kWeightVectorBytes + 32 * half);
      const int shift = 4 - 2 * (c & 3);
      const __m256i moved = shift >= 0 ? _mm256_slli_epi16(bits, shift) : _mm256_srli_epi16(bits, -shift);
      w = _mm256_or_si256(w, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
    }
    return w;
  }
};

// Weights that KeptWeights has written: 64-byte vectors in the order of use.
struct ExpandedWeights {
  const uint8_t* bytes;

  TOKENMILL_INLINE __m256i load(int g, int c, int half) const {
    return load256(bytes + (g * 8 + c) * kWeightVectorBytes + 32 * half);
  }
};

// Packed weights that are written to a block for other tiles of tokens while the first tile uses them. Each vector must
// be loaded once.
template <WeightFormat kFormat>
struct KeptWeights {
  PackedWeights<kFormat> packed;
  uint8_t* block;

  TOKENMILL_INLINE __m256i load(int g, int c, int half) const {
    const __m256i w = packed.load(g, c, half);
    _mm256_store_si256(reinterpret_cast<__m256i*>(block + (g * 8 + c) * kWeightVectorBytes + 32 * half), w);
    return w;
  }
};

template <WeightFormat kFormatOfKernel>
struct IntegerKernel {
  static constexpr WeightFormat kFormat = kFormatOfKernel;
  static constexpr PanelFormat kPanel = panel_format(kFormat);
  static constexpr bool kWide = kPanel.offset == 128;  // eight-bit weights: int16 products of widened bytes
  static constexpr bool kHalves = kPanel.scales == ScaleKind::superblock_half;
  static constexpr bool kMin = kPanel.scales == ScaleKind::with_min || kPanel.scales == ScaleKind::superblock_min;
  static constexpr bool kBorrows = kMin && kPanel.high_bits == 1;  // Q5_1, Q5_K
  static constexpr int kLaneOffset = kBorrows ? 16 : kPanel.offset;
  static constexpr bool kStartsAtBias = kLaneOffset != 0;
  // Formats with the same number read the same packed activations.
  static constexpr int kPacking = kWide ? 0 : kHalves ? 1 : kBorrows ? 2 : 3 + kLaneOffset / 8;

  static constexpr int kExpandedPanels = 1;
  static constexpr int stream_panels(int tokens) { return tokens <= 2 ? 2 : 1; }
  static constexpr int kQuadWords = kWide ? 16 : 8;
  static constexpr int kBlockGroups = kWide ? 16 : 32;
  static constexpr int kGroupBlockBytes = 512;
  static constexpr int kScaleFloats = (kHalves ? 2 : 1) * kRowsPerPanel;
  static constexpr int kBlockScales = kBlockGroups * kGroupBlockBytes;
  static constexpr int kBlockMins = kBlockScales + kBlockGroups * kScaleFloats * 4;
  static constexpr int kBlockBytes = kBlockMins + (kMin ? kBlockGroups * kRowsPerPanel * 4 : 0);
  static constexpr int kGroupFileBytes = unit_layout(kFormat, kGroupsPerUnit).bytes / kGroupsPerUnit;

  static void pack_group(const int8_t* q, const int16_t* half_sums, int32_t* to, int32_t* bias0, int32_t* bias1) {
    const __m256i a = load256(q);
    if constexpr (kWide) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8), _mm256_srai_epi16(a, 8));
      *bias0 = -kPanel.offset * (half_sums[0] + half_sums[1]);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a);
      if constexpr (kStartsAtBias) {
        // Per 32-bit lane of the dot: the int16 lanes see elements 4c, 4c+1 and 4c+2, 4c+3.
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), a);
        __m128i first = _mm256_castsi256_si128(pairs);
        __m128i second = _mm256_extracti128_si256(pairs, 1);
        if constexpr (!kHalves) {
          first = _mm_add_epi16(first, second);
        }
        *bias0 = lane_bias(first);
        if constexpr (kHalves) {
          *bias1 = lane_bias(second);
        }
      }
      if constexpr (kBorrows) {
        *bias1 = kLaneOffset * (half_sums[0] + half_sums[1]);
      }
    }
  }

  static TOKENMILL_INLINE int32_t lane_bias(__m128i pairs) {
    pairs = _mm_add_epi16(pairs, _mm_shuffle_epi32(pairs, 0x4E));
    pairs = _mm_add_epi16(pairs, _mm_shuffle_epi32(pairs, 0xB1));
    return _mm_cvtsi128_si32(_mm_mullo_epi16(pairs, _mm_set1_epi16(-kLaneOffset)));
  }

  // acc = fma(float(dot), scale * activation scale, acc); with a minimum: acc = fma(min, scaled activation sum, acc).
  template <int T>
  static TOKENMILL_INLINE void accumulate(const __m256i (&dot)[T][2], const int32_t* record, const float* scale,
                                          const float* min, __m256 (&sums)[T][2]) {
    constexpr ActivationRecord kRecord{T, kQuadWords};
    unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
      const int t = index_t.value;
      const __m256 activation_scale = broadcast_float(record + kRecord.scale() + t);
      unrolled<0, 2>([&](auto index_half) TOKENMILL_LAMBDA {
        const int half = index_half.value;
        const __m256 factor = _mm256_mul_ps(_mm256_loadu_ps(scale + 8 * half), activation_scale);
        sums[t][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[t][half]), factor, sums[t][half]);
        if constexpr (kMin) {
          sums[t][half] = _mm256_fmadd_ps(_mm256_loadu_ps(min + 8 * half),
                                          broadcast_float(record + kRecord.scaled_sum() + t), sums[t][half]);
        }
      });
    });
  }

  // Elements 4 * kBegin .. 4 * kEnd of a group in int16 lanes, widened at the end.
  template <int T, int kBegin, int kEnd, typename Weights>
  static TOKENMILL_INLINE void dot_narrow(const Weights& weights, int g, const int32_t* record, int bias,
                                          __m256i (&dot)[T][2]) {
    constexpr ActivationRecord kRecord{T, kQuadWords};
    unrolled<kBegin, kEnd>([&](auto index_c) TOKENMILL_LAMBDA {
      const int c = index_c.value;
      const __m256i w0 = weights.load(g, c, 0);
      const __m256i w1 = weights.load(g, c, 1);
      unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
        const int t = index_t.value;
        const __m256i a = broadcast_word(record + t * kQuadWords + c);
        const __m256i p0 = _mm256_maddubs_epi16(w0, a);
        const __m256i p1 = _mm256_maddubs_epi16(w1, a);
        if (c == kBegin) {
          if constexpr (kStartsAtBias) {
            const __m256i start = broadcast_word(record + kRecord.bias(bias) + t);
            dot[t][0] = in_order(_mm256_add_epi16(start, p0));
            dot[t][1] = in_order(_mm256_add_epi16(start, p1));
          } else {
            dot[t][0] = p0;
            dot[t][1] = p1;
          }
        } else {
          dot[t][0] = in_order(_mm256_add_epi16(dot[t][0], p0));
          dot[t][1] = in_order(_mm256_add_epi16(dot[t][1], p1));
        }
      });
    });
    unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
      const int t = index_t.value;
      unrolled<0, 2>([&](auto index_half) TOKENMILL_LAMBDA {
        const int half = index_half.value;
        dot[t][half] = _mm256_madd_epi16(dot[t][half], _mm256_set1_epi16(1));
        if constexpr (kBorrows) {
          dot[t][half] = _mm256_add_epi32(dot[t][half], broadcast_word(record + kRecord.bias(1) + t));
        }
      });
    });
  }

  // Elements 4c, 4c+2 (even) or 4c+1, 4c+3 (odd) of eight rows as int16.
  static TOKENMILL_INLINE __m256i widen(__m256i bytes, int odd) {
    return odd != 0 ? _mm256_srli_epi16(bytes, 8) : _mm256_and_si256(bytes, _mm256_set1_epi16(0xFF));
  }

  template <int T, typename Weights>
  static TOKENMILL_INLINE void dot_wide(const Weights& weights, int g, const int32_t* record, __m256i (&dot)[T][2]) {
    constexpr ActivationRecord kRecord{T, kQuadWords};
    unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
      const int t = index_t.value;
      dot[t][0] = broadcast_word(record + kRecord.bias(0) + t);
      dot[t][1] = dot[t][0];
    });
    unrolled<0, 8>([&](auto index_c) TOKENMILL_LAMBDA {
      const int c = index_c.value;
      const __m256i bytes0 = weights.load(g, c, 0);
      const __m256i bytes1 = weights.load(g, c, 1);
      unrolled<0, 2>([&](auto index_odd) TOKENMILL_LAMBDA {
        const int odd = index_odd.value;
        const __m256i w0 = widen(bytes0, odd);
        const __m256i w1 = widen(bytes1, odd);
        unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
          const int t = index_t.value;
          const __m256i a = broadcast_word(record + t * kQuadWords + 8 * odd + c);
          dot[t][0] = in_order(_mm256_add_epi32(dot[t][0], _mm256_madd_epi16(w0, a)));
          dot[t][1] = in_order(_mm256_add_epi32(dot[t][1], _mm256_madd_epi16(w1, a)));
        });
      });
    });
  }

  template <int T, typename Weights>
  static TOKENMILL_INLINE void run_group(const Weights& weights, int g, const int32_t* record, const float* scale,
                                         const float* min, __m256 (&sums)[T][2]) {
    __m256i dot[T][2];
    if constexpr (kHalves) {
      dot_narrow<T, 0, 4>(weights, g, record, 0, dot);
      accumulate<T>(dot, record, scale, min, sums);
      dot_narrow<T, 4, 8>(weights, g, record, 1, dot);
      accumulate<T>(dot, record, scale + kRowsPerPanel, min, sums);
    } else {
      if constexpr (kWide) {
        dot_wide<T>(weights, g, record, dot);
      } else {
        dot_narrow<T, 0, 8>(weights, g, record, 0, dot);
      }
      accumulate<T>(dot, record, scale, min, sums);
    }
  }

  template <int T>
  static TOKENMILL_INLINE void load_sums(const float* y, int64_t stride, bool first, __m256 (&sums)[T][2]) {
    unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
      const int t = index_t.value;
      sums[t][0] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(y + t * stride);
      sums[t][1] = first ? _mm256_setzero_ps() : _mm256_loadu_ps(y + t * stride + 8);
    });
  }

  template <int T>
  static TOKENMILL_INLINE void store_sums(const __m256 (&sums)[T][2], float* y, int64_t stride) {
    unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
      const int t = index_t.value;
      _mm256_storeu_ps(y + t * stride, sums[t][0]);
      _mm256_storeu_ps(y + t * stride + 8, sums[t][1]);
    });
  }

  static TOKENMILL_INLINE void prefetch_group(const uint8_t* p) {
    for (int at = 0; at < kGroupFileBytes; at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(p + at), _MM_HINT_T0);
    }
  }

  // P panels, `panel_stride` bytes apart, straight from the packed weights: a unit of each in turn. What lies `ahead`
  // bytes further on is prefetched.
  template <int T, int P>
  static __attribute__((noinline)) void stream(const uint8_t* panel, uint64_t panel_stride, int64_t groups,
                                               const int32_t* records, float* y, int64_t stride, uint64_t ahead) {
    constexpr int kRecordWords = ActivationRecord{T, kQuadWords}.words();
    __m256 sums[P][T][2];
    unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
      const int p = index_p.value;
      load_sums<T>(y + p * kRowsPerPanel, stride, true, sums[p]);
    });
    UnitScales scales;
    for (int64_t done = 0; done < groups; done += kGroupsPerUnit) {
      const int n = groups_in_unit(groups - done, 0);
      const UnitLayout layout = unit_layout(kFormat, n);
      unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
        const int p = index_p.value;
        const uint8_t* unit = panel + static_cast<uint64_t>(p) * panel_stride;
        expand_scales<kFormat>(unit, n, scales.scale, scales.min);
        const PackedWeights<kFormat> weights{unit, unit + layout.high_bits};
        for (int g = 0; g < n; ++g) {
          prefetch_group(unit + ahead + g * kGroupFileBytes);
          run_group<T>(weights, g, records + g * kRecordWords, scales.scale + g * kScaleFloats,
                       scales.min + g * kRowsPerPanel, sums[p]);
        }
      });
      records += n * kRecordWords;
      panel += layout.bytes;
    }
    unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
      const int p = index_p.value;
      store_sums<T>(sums[p], y + p * kRowsPerPanel, stride);
    });
  }

  // The first tile of tokens over at most kBlockGroups groups of a panel; leaves the weights and scales expanded in
  // `block` for `again`.
  template <int T, int P>
  static __attribute__((noinline)) void expand(const uint8_t* unit, uint64_t panel_stride, int64_t groups,
                                               const int32_t* records, float* y, int64_t stride, bool first,
                                               uint8_t* block) {
    static_assert(P == 1);
    constexpr int kRecordWords = ActivationRecord{T, kQuadWords}.words();
    auto* scale = reinterpret_cast<float*>(block + kBlockScales);
    auto* min = reinterpret_cast<float*>(block + kBlockMins);
    __m256 sums[T][2];
    load_sums<T>(y, stride, first, sums);
    for (int64_t done = 0; done < groups; done += kGroupsPerUnit) {
      const int n = groups_in_unit(groups - done, 0);
      const UnitLayout layout = unit_layout(kFormat, n);
      expand_scales<kFormat>(unit, n, scale, min);
      const KeptWeights<kFormat> weights{{unit, unit + layout.high_bits}, block};
      for (int g = 0; g < n; ++g, records += kRecordWords) {
        prefetch_group(unit + panel_stride + g * kGroupFileBytes);
        run_group<T>(weights, g, records, scale + g * kScaleFloats, min + g * kRowsPerPanel, sums);
      }
      unit += layout.bytes;
      block += n * kGroupBlockBytes;
      scale += n * kScaleFloats;
      min += n * kRowsPerPanel;
    }
    store_sums<T>(sums, y, stride);
  }

  // A further tile of tokens over the block.
  template <int T, int P>
  static __attribute__((noinline)) void again(const uint8_t* block, int64_t groups, const int32_t* records, float* y,
                                              int64_t stride, bool first) {
    static_assert(P == 1);
    constexpr int kRecordWords = ActivationRecord{T, kQuadWords}.words();
    const auto* scale = reinterpret_cast<const float*>(block + kBlockScales);
    const auto* min = reinterpret_cast<const float*>(block + kBlockMins);
    __m256 sums[T][2];
    load_sums<T>(y, stride, first, sums);
    for (int64_t g = 0; g < groups; ++g, records += kRecordWords) {
      run_group<T>(ExpandedWeights{block + g * kGroupBlockBytes}, 0, records, scale + g * kScaleFloats,
                   min + g * kRowsPerPanel, sums);
    }
    store_sums<T>(sums, y, stride);
  }
};

}  // namespace
}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
