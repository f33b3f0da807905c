// Dot kernels of the integer formats with AVX-512 VNNI.
//
// dpbusd adds four products of unsigned weights and signed activations to an exact int32, so the offset of a format is
// a start value: -offset * (sum of the group's activations). One 64-byte vector is four elements of all 16 rows of a
// panel. Panels are taken side by side: two share each broadcast activation, and four keep more reads in flight where a
// single token leaves memory as the limit.
#pragma once
#include <immintrin.h>

#include "kernels/shared/matmul_panel16-inl.h"
#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

TOKENMILL_INLINE __m512i load512(const void* p) { return _mm512_loadu_si512(p); }

TOKENMILL_INLINE __m128i load128(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

TOKENMILL_INLINE __m512i broadcast_word(const int32_t* p) { return _mm512_set1_epi32(*p); }

TOKENMILL_INLINE __m512 broadcast_float(const int32_t* p) { return _mm512_castsi512_ps(_mm512_set1_epi32(*p)); }

TOKENMILL_INLINE __m512 load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Scales (and minima, as what is added) of a unit, expanded to floats: [group][16 rows]; Q6_K: [half group][16 rows].
struct UnitScales {
  alignas(64) float scale[2 * kGroupsPerUnit * kRowsPerPanel];
  alignas(64) float min[kGroupsPerUnit * kRowsPerPanel];
};

template <WeightFormat kFormat>
TOKENMILL_INLINE void expand_scales(const uint8_t* unit, int groups, float* scale, float* min) {
  constexpr ScaleKind kKind = panel_format(kFormat).scales;
  const uint8_t* from = unit + unit_layout(kFormat, groups).scales;
  if constexpr (kKind == ScaleKind::plain || kKind == ScaleKind::with_min) {
    for (int g = 0; g < groups; ++g) {
      _mm512_storeu_ps(scale + 16 * g, load_halves(from + 32 * g));
      if constexpr (kKind == ScaleKind::with_min) {
        _mm512_storeu_ps(min + 16 * g, load_halves(from + 32 * (groups + g)));
      }
    }
  } else if constexpr (kKind == ScaleKind::superblock_min) {
    const __m512i two_bits = _mm512_set1_epi32(0x30);
    const __m512i four_bits = _mm512_set1_epi32(15);
    const __m512i high = load512(from + 128);
    const __m512 d = load_halves(from + 192);
    const __m512 dmin = _mm512_xor_ps(load_halves(from + 224), _mm512_set1_ps(-0.0F));
    unrolled<0, kGroupsPerUnit>([&](auto index_g) TOKENMILL_LAMBDA {
      const int g = index_g.value;
      const __m512i bytes = _mm512_cvtepu8_epi32(load128(from + 16 * g));
      // The group's upper bits of the scale move to bits 4..5, then those of the minimum.
      const __m512i scale_high = g == 0 ? _mm512_slli_epi32(high, 4) : _mm512_srli_epi32(high, 4 * g - 4);
      const __m512i min_high = g == 0 ? _mm512_slli_epi32(high, 2) : _mm512_srli_epi32(high, 4 * g - 2);
      const __m512i s = _mm512_or_si512(_mm512_and_si512(bytes, four_bits), _mm512_and_si512(scale_high, two_bits));
      const __m512i m = _mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_and_si512(min_high, two_bits));
      _mm512_storeu_ps(scale + 16 * g, _mm512_mul_ps(d, _mm512_cvtepi32_ps(s)));
      _mm512_storeu_ps(min + 16 * g, _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(m)));
    });
  } else {
    const __m512 d = load_halves(from + 256);
    for (int i = 0; i < 2 * kGroupsPerUnit; ++i) {
      const __m512i integers = _mm512_cvtepi8_epi32(load128(from + 16 * i));
      _mm512_storeu_ps(scale + 16 * i, _mm512_mul_ps(d, _mm512_cvtepi32_ps(integers)));
    }
  }
}

// The codebook of IQ4_NL plus 128.
TOKENMILL_INLINE __m512i codebook() {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90, -75, -59, -39, -15));
}

// Weights as they lie in a panel's unit: elements 4c .. 4c+3 of group g, as unsigned bytes.
template <WeightFormat kFormat>
struct PackedWeights {
  const uint8_t* unit;
  const uint8_t* high;

  TOKENMILL_INLINE __m512i load(int g, int c) const {
    constexpr PanelFormat kPanel = panel_format(kFormat);
    const uint8_t* group = unit + g * kPanel.weight_bytes;
    if constexpr (kFormat == WeightFormat::q8_0) {
      return load512(group + c * kWeightVectorBytes);
    }
    const __m512i pair = load512(group + (c & 3) * kWeightVectorBytes);
    __m512i w = _mm512_and_si512(c < 4 ? pair : _mm512_srli_epi16(pair, 4), _mm512_set1_epi8(15));
    if constexpr (kFormat == WeightFormat::iq4_nl) {
      w = _mm512_shuffle_epi8(codebook(), w);
    }
    if constexpr (kPanel.high_bits == 1) {
      const __m512i bits = load512(high + g * kWeightVectorBytes);
      const __m512i moved = c < 4 ? _mm512_slli_epi16(bits, 4 - c) : _mm512_srli_epi16(bits, c - 4);
      w = merge(w, moved, _mm512_set1_epi8(16));
    }
    if constexpr (kPanel.high_bits == 2) {
      const __m512i bits = load512(high + (2 * g + c / 4) * kWeightVectorBytes);
      const int shift = 4 - 2 * (c & 3);
      const __m512i moved = shift >= 0 ? _mm512_slli_epi16(bits, shift) : _mm512_srli_epi16(bits, -shift);
      w = merge(w, moved, _mm512_set1_epi8(0x30));
    }
    return w;
  }

  // w | (bits & mask)
  static TOKENMILL_INLINE __m512i merge(__m512i w, __m512i bits, __m512i mask) {
    constexpr int kOrAnd = 0xF8;
    return _mm512_ternarylogic_epi32(w, bits, mask, kOrAnd);
  }
};

// Weights that KeptWeights has written: 64-byte vectors in the order of use.
struct ExpandedWeights {
  const uint8_t* bytes;

  TOKENMILL_INLINE __m512i load(int g, int c) const { return _mm512_load_si512(bytes + (g * 8 + c) * 64); }
};

// Packed weights that are written to a block for other tiles of tokens while the first tile uses them. Each vector must
// be loaded once.
template <WeightFormat kFormat>
struct KeptWeights {
  PackedWeights<kFormat> packed;
  uint8_t* block;

  TOKENMILL_INLINE __m512i load(int g, int c) const {
    const __m512i w = packed.load(g, c);
    _mm512_store_si512(block + (g * 8 + c) * kWeightVectorBytes, w);
    return w;
  }
};

template <WeightFormat kFormatOfKernel>
struct IntegerKernel {
  static constexpr WeightFormat kFormat = kFormatOfKernel;
  static constexpr PanelFormat kPanel = panel_format(kFormat);
  static constexpr bool kHalves = kPanel.scales == ScaleKind::superblock_half;
  static constexpr bool kMin = kPanel.scales == ScaleKind::with_min || kPanel.scales == ScaleKind::superblock_min;

  // Formats with the same number read the same packed activations.
  static constexpr int kPacking = kHalves ? 0 : kPanel.offset == 128 ? 1 : 2 + kPanel.offset / 8;

  static constexpr int kExpandedPanels = 2;
  static constexpr int stream_panels(int tokens) { return tokens == 1 ? 4 : tokens <= 6 ? 2 : 1; }
  static constexpr int kQuadWords = 8;
  static constexpr int kBlockGroups = 24;
  static constexpr int kGroupBlockBytes = 512;
  static constexpr int kScaleFloats = (kHalves ? 2 : 1) * kRowsPerPanel;
  static constexpr int kBlockScales = kBlockGroups * kGroupBlockBytes;
  static constexpr int kBlockMins = kBlockScales + kBlockGroups * kScaleFloats * 4;
  static constexpr int kBlockBytes = kBlockMins + (kMin ? kBlockGroups * kRowsPerPanel * 4 : 0);
  static constexpr int kGroupFileBytes = unit_layout(kFormat, kGroupsPerUnit).bytes / kGroupsPerUnit;

  static void pack_group(const int8_t* q, const int16_t* half_sums, int32_t* to, int32_t* bias0, int32_t* bias1) {
    std::memcpy(to, q, kGroupSize);
    *bias0 = -kPanel.offset * (kHalves ? half_sums[0] : half_sums[0] + half_sums[1]);
    *bias1 = kHalves ? -kPanel.offset * half_sums[1] : 0;
  }

  // Elements 4 * kBegin .. 4 * kEnd of a group of P panels, then
  // acc = fma(float(dot), scale * activation scale, acc); with a minimum: acc = fma(min, scaled activation sum, acc).
  template <int T, int P, int kBegin, int kEnd, typename Weights>
  static TOKENMILL_INLINE void run_part(const Weights (&weights)[P], int g, const int32_t* record, int bias,
                                        const float* const (&scale)[P], const float* const (&min)[P],
                                        __m512 (&sums)[P][T]) {
    constexpr ActivationRecord kRecord{T, kQuadWords};
    __m512i dot[P][T];
    unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
      const int t = index_t.value;
      unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
        const int p = index_p.value;
        dot[p][t] = kPanel.offset != 0 ? broadcast_word(record + kRecord.bias(bias) + t) : _mm512_setzero_si512();
      });
    });
    unrolled<kBegin, kEnd>([&](auto index_c) TOKENMILL_LAMBDA {
      const int c = index_c.value;
      __m512i w[P];
      unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
        const int p = index_p.value;
        w[p] = weights[p].load(g, c);
      });
      unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
        const int t = index_t.value;
        const __m512i a = broadcast_word(record + t * kQuadWords + c);
        unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
          const int p = index_p.value;
          dot[p][t] = _mm512_dpbusd_epi32(dot[p][t], w[p], a);
        });
      });
    });
    unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
      const int p = index_p.value;
      const __m512 row_scale = _mm512_loadu_ps(scale[p]);
      unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
        const int t = index_t.value;
        const __m512 factor = _mm512_mul_ps(row_scale, broadcast_float(record + kRecord.scale() + t));
        sums[p][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[p][t]), factor, sums[p][t]);
        if constexpr (kMin) {
          sums[p][t] =
              _mm512_fmadd_ps(_mm512_loadu_ps(min[p]), broadcast_float(record + kRecord.scaled_sum() + t), sums[p][t]);
        }
      });
    });
  }

  template <int T, int P, typename Weights>
  static TOKENMILL_INLINE void run_group(const Weights (&weights)[P], int g, const int32_t* record,
                                         const float* const (&scale)[P], const float* const (&min)[P],
                                         __m512 (&sums)[P][T]) {
    if constexpr (kHalves) {
      const float* second[P];
      unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
        const int p = index_p.value;
        second[p] = scale[p] + kRowsPerPanel;
      });
      run_part<T, P, 0, 4>(weights, g, record, 0, scale, min, sums);
      run_part<T, P, 4, 8>(weights, g, record, 1, second, min, sums);
    } else {
      run_part<T, P, 0, 8>(weights, g, record, 0, scale, min, sums);
    }
  }

  template <int T, int P>
  static TOKENMILL_INLINE void load_sums(const float* y, int64_t stride, bool first, __m512 (&sums)[P][T]) {
    unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
      const int t = index_t.value;
      unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
        const int p = index_p.value;
        sums[p][t] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + t * stride + p * kRowsPerPanel);
      });
    });
  }

  template <int T, int P>
  static TOKENMILL_INLINE void store_sums(const __m512 (&sums)[P][T], float* y, int64_t stride) {
    unrolled<0, T>([&](auto index_t) TOKENMILL_LAMBDA {
      const int t = index_t.value;
      unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
        const int p = index_p.value;
        _mm512_storeu_ps(y + t * stride + p * kRowsPerPanel, sums[p][t]);
      });
    });
  }

  static TOKENMILL_INLINE void prefetch_group(const uint8_t* p) {
    for (int at = 0; at < kGroupFileBytes; at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(p + at), _MM_HINT_T0);
    }
  }

  // P panels, `panel_stride` bytes apart, straight from the packed weights. What lies `ahead` bytes further on is
  // prefetched.
  template <int T, int P>
  static __attribute__((noinline)) void stream(const uint8_t* panel, uint64_t panel_stride, int64_t groups,
                                               const int32_t* records, float* y, int64_t stride, uint64_t ahead) {
    constexpr int kRecordWords = ActivationRecord{T, kQuadWords}.words();
    __m512 sums[P][T];
    load_sums<T, P>(y, stride, true, sums);
    UnitScales scales[P];
    for (int64_t done = 0; done < groups; done += kGroupsPerUnit) {
      const int n = groups_in_unit(groups - done, 0);
      const UnitLayout layout = unit_layout(kFormat, n);
      PackedWeights<kFormat> weights[P];
      unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
        const int p = index_p.value;
        const uint8_t* unit = panel + static_cast<uint64_t>(p) * panel_stride;
        expand_scales<kFormat>(unit, n, scales[p].scale, scales[p].min);
        weights[p] = {unit, unit + layout.high_bits};
      });
      for (int g = 0; g < n; ++g, records += kRecordWords) {
        const float* scale[P];
        const float* min[P];
        unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
          const int p = index_p.value;
          prefetch_group(weights[p].unit + ahead + g * kGroupFileBytes);
          scale[p] = scales[p].scale + g * kScaleFloats;
          min[p] = scales[p].min + g * kRowsPerPanel;
        });
        run_group<T, P>(weights, g, records, scale, min, sums);
      }
      panel += layout.bytes;
    }
    store_sums<T, P>(sums, y, stride);
  }

  // The first tile of tokens over at most kBlockGroups groups of P panels; leaves the weights and scales expanded in
  // the blocks, kBlockBytes apart, for `again`.
  template <int T, int P>
  static __attribute__((noinline)) void expand(const uint8_t* panel, uint64_t panel_stride, int64_t groups,
                                               const int32_t* records, float* y, int64_t stride, bool first,
                                               uint8_t* blocks) {
    constexpr int kRecordWords = ActivationRecord{T, kQuadWords}.words();
    __m512 sums[P][T];
    load_sums<T, P>(y, stride, first, sums);
    for (int64_t done = 0; done < groups; done += kGroupsPerUnit) {
      const int n = groups_in_unit(groups - done, 0);
      const UnitLayout layout = unit_layout(kFormat, n);
      KeptWeights<kFormat> weights[P];
      float* scale[P];
      float* min[P];
      unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
        const int p = index_p.value;
        const uint8_t* unit = panel + static_cast<uint64_t>(p) * panel_stride;
        uint8_t* block = blocks + p * kBlockBytes;
        scale[p] = reinterpret_cast<float*>(block + kBlockScales) + done * kScaleFloats;
        min[p] = reinterpret_cast<float*>(block + kBlockMins) + (kMin ? done * kRowsPerPanel : 0);
        expand_scales<kFormat>(unit, n, scale[p], min[p]);
        weights[p] = {{unit, unit + layout.high_bits}, block + done * kGroupBlockBytes};
      });
      for (int g = 0; g < n; ++g, records += kRecordWords) {
        const float* group_scale[P];
        const float* group_min[P];
        unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
          const int p = index_p.value;
          prefetch_group(weights[p].packed.unit + P * panel_stride + g * kGroupFileBytes);
          group_scale[p] = scale[p] + g * kScaleFloats;
          group_min[p] = min[p] + g * kRowsPerPanel;
        });
        run_group<T, P>(weights, g, records, group_scale, group_min, sums);
      }
      panel += layout.bytes;
    }
    store_sums<T, P>(sums, y, stride);
  }

  // A further tile of tokens over the blocks.
  template <int T, int P>
  static __attribute__((noinline)) void again(const uint8_t* blocks, int64_t groups, const int32_t* records, float* y,
                                              int64_t stride, bool first) {
    constexpr int kRecordWords = ActivationRecord{T, kQuadWords}.words();
    __m512 sums[P][T];
    load_sums<T, P>(y, stride, first, sums);
    for (int64_t g = 0; g < groups; ++g, records += kRecordWords) {
      ExpandedWeights weights[P];
      const float* scale[P];
      const float* min[P];
      unrolled<0, P>([&](auto index_p) TOKENMILL_LAMBDA {
        const int p = index_p.value;
        const uint8_t* block = blocks + p * kBlockBytes;
        weights[p] = {block + g * kGroupBlockBytes};
        scale[p] = reinterpret_cast<const float*>(block + kBlockScales) + g * kScaleFloats;
        min[p] = reinterpret_cast<const float*>(block + kBlockMins) + g * kRowsPerPanel;
      });
      run_group<T, P>(weights, 0, records, scale, min, sums);
    }
    store_sums<T, P>(sums, y, stride);
  }
};

}  // namespace
}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
