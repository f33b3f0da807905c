// The loops around the dot kernels of a set with panels of 16 rows: cuts tokens into tiles, K into blocks, and packs
// the activations of a block into records that the kernels read with one broadcast load per use.
//
// Up to one tile of tokens: `stream` runs over whole panels straight from the packed weights, expanding them in
// registers (memory speed is the limit). More tokens: a block of a panel is expanded once into a small scratch that
// stays in the first-level cache, and every tile of tokens runs over it (arithmetic is the limit). Both visit the
// groups of a row in ascending order and keep the running sums in y between blocks, so tiling cannot change a result.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "contract/kernel_set.h"
#include "kernels/shared/pack_panel16_layout-inl.h"

#if defined(__clang__)
#define TOKENMILL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TOKENMILL_UNROLL _Pragma("GCC unroll 16")
#endif
#define TOKENMILL_INLINE inline __attribute__((always_inline))

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

// What the tile of `tokens` tokens needs of one group of 32, in four-byte words:
//   q[tokens][quad_words]   the quantized values, in the order of the set's dot instruction
//   bias[2][tokens]         start values of the integer sums (what offsets subtract)
//   scale[tokens]           float
//   scaled_sum[tokens]      float: scale * sum of q, for formats with a minimum
struct ActivationRecord {
  int tokens;
  int quad_words;

  constexpr int words() const { return tokens * (quad_words + 4); }
  constexpr int bias(int which) const { return tokens * (quad_words + which); }
  constexpr int scale() const { return tokens * (quad_words + 2); }
  constexpr int scaled_sum() const { return tokens * (quad_words + 3); }
};

constexpr int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Packs groups [group_begin, group_end) of tokens [token, token + tile) into records, one after another.
template <typename Kernel>
inline void pack_activations(const Activations& x, int64_t token, int tile, int64_t group_begin, int64_t group_end,
                             int32_t* out) {
  const ActivationRecord record{tile, Kernel::kQuadWords};
  const int64_t groups = x.k / kGroupSize;
  for (int t = 0; t < tile; ++t) {
    int32_t* to = out;
    for (int64_t g = group_begin; g < group_end; ++g, to += record.words()) {
      const int64_t at = (token + t) * groups + g;
      const float scale = x.scale[at];
      const int32_t sum = x.half_sums[2 * at] + x.half_sums[2 * at + 1];
      const float scaled_sum = scale * static_cast<float>(sum);
      Kernel::pack_group(x.q + at * kGroupSize, x.half_sums + 2 * at, to + t * Kernel::kQuadWords,
                         to + record.bias(0) + t, to + record.bias(1) + t);
      std::memcpy(to + record.scale() + t, &scale, sizeof scale);
      std::memcpy(to + record.scaled_sum() + t, &scaled_sum, sizeof scaled_sum);
    }
  }
}

// 16 running sums per token, at `sums` with `stride` floats between tokens. Lanes past the matrix's last row live in a
// local copy, because nothing may be written there.
template <typename Run>
TOKENMILL_INLINE void with_sums(float* y, int64_t y_stride, int tokens, int64_t lanes, bool first, const Run& run) {
  if (lanes >= kRowsPerPanel) {
    run(y, y_stride);
    return;
  }
  constexpr int kMaxTokens = 16;
  alignas(64) float sums[kMaxTokens * kRowsPerPanel] = {};
  const auto bytes = static_cast<size_t>(lanes) * sizeof(float);
  if (!first) {
    for (int t = 0; t < tokens; ++t) {
      std::memcpy(sums + t * kRowsPerPanel, y + t * y_stride, bytes);
    }
  }
  run(sums, static_cast<int64_t>(kRowsPerPanel));
  for (int t = 0; t < tokens; ++t) {
    std::memcpy(y + t * y_stride, sums + t * kRowsPerPanel, bytes);
  }
}

// Calls run(integral constant T) for the run-time `tile`.
template <int kTile>
struct Tile {
  static constexpr int value = kTile;
};

template <int kMaxTile, typename Run>
TOKENMILL_INLINE void dispatch_tile(int tile, const Run& run) {
  if constexpr (kMaxTile > 1) {
    if (tile < kMaxTile) {
      dispatch_tile<kMaxTile - 1>(tile, run);
      return;
    }
  }
  run(Tile<kMaxTile>{});
}

struct PanelRange {
  const PackedMatrix& w;
  int64_t begin;
  int64_t end;

  const uint8_t* panel(int64_t p) const { return w.data + static_cast<uint64_t>(p) * w.panel_bytes; }
  int64_t lanes(int64_t p) const { return w.rows - p * kRowsPerPanel; }
};

constexpr int kActivationWords = 40 * 1024;  // 160 KiB on the stack

// One tile of tokens: every panel is read once, from memory.
template <typename Kernel>
void stream_tokens(const PanelRange& panels, const Activations& x, float* y, int64_t y_stride) {
  alignas(64) int32_t records[kActivationWords];
  const auto tile = static_cast<int>(x.rows);
  const int record_words = ActivationRecord{tile, Kernel::kQuadWords}.words();
  const int64_t groups = x.k / kGroupSize;
  const int64_t block = kActivationWords / record_words / kGroupsPerUnit * kGroupsPerUnit;
  for (int64_t g = 0; g < groups; g += block) {
    const int64_t count = min64(block, groups - g);
    const int64_t offset = g / kGroupsPerUnit * unit_layout(Kernel::kFormat, kGroupsPerUnit).bytes;
    const bool first = g == 0;
    pack_activations<Kernel>(x, 0, tile, g, g + count, records);
    for (int64_t p = panels.begin; p < panels.end; ++p) {
      with_sums(y + p * kRowsPerPanel, y_stride, tile, panels.lanes(p), first, [&](float* sums, int64_t stride) {
        dispatch_tile<Kernel::kMaxTile>(tile, [&](auto t) {
          Kernel::template stream<decltype(t)::value>(panels.panel(p) + offset, count, records, sums, stride, first);
        });
      });
    }
  }
}

// Many tokens: blocks of K are expanded once per panel and used by every tile of a block of tokens.
template <typename Kernel>
void block_tokens(const PanelRange& panels, const Activations& x, float* y, int64_t y_stride) {
  alignas(64) int32_t records[kActivationWords];
  alignas(64) uint8_t scratch[Kernel::kScratchBytes];
  constexpr int64_t kBlock = Kernel::kBlockGroups;
  constexpr int64_t kTokenWords = kBlock * (Kernel::kQuadWords + 4);
  constexpr int64_t kMaxTokens = kActivationWords / kTokenWords;
  const int64_t groups = x.k / kGroupSize;
  const int64_t token_blocks = ceil_div(x.rows, kMaxTokens);
  for (int64_t b = 0; b < token_blocks; ++b) {
    const int64_t token_begin = x.rows * b / token_blocks;
    const int64_t tokens = x.rows * (b + 1) / token_blocks - token_begin;
    const int64_t tiles = ceil_div(tokens, Kernel::kMaxTile);
    for (int64_t g = 0; g < groups; g += kBlock) {
      const int64_t count = min64(kBlock, groups - g);
      const int64_t offset = g / kGroupsPerUnit * unit_layout(Kernel::kFormat, kGroupsPerUnit).bytes;
      const bool first = g == 0;
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t from = tokens * i / tiles;
        pack_activations<Kernel>(x, token_begin + from, static_cast<int>(tokens * (i + 1) / tiles - from), g, g + count,
                                 records + from * kTokenWords);
      }
      for (int64_t p = panels.begin; p < panels.end; ++p) {
        const uint8_t* weights = panels.panel(p) + offset;
        const uint8_t* next = p + 1 < panels.end ? weights + panels.w.panel_bytes : weights;
        Kernel::expand(weights, count, scratch);
        for (int64_t i = 0; i < tiles; ++i) {
          const int64_t from = tokens * i / tiles;
          const auto tile = static_cast<int>(tokens * (i + 1) / tiles - from);
          float* out = y + (token_begin + from) * y_stride + p * kRowsPerPanel;
          const int32_t* tile_records = records + from * kTokenWords;
          with_sums(out, y_stride, tile, panels.lanes(p), first, [&](float* sums, int64_t stride) {
            dispatch_tile<Kernel::kMaxTile>(tile, [&](auto t) {
              Kernel::template expanded<decltype(t)::value>(scratch, count, tile_records, sums, stride, first,
                                                            i == 0 ? next : nullptr);
            });
          });
        }
      }
    }
  }
}

template <typename Kernel>
TOKENMILL_INLINE void matmul_integer(const PackedMatrix& w, const Activations& x, int64_t panel_begin,
                                     int64_t panel_end, float* y, int64_t y_stride) {
  const PanelRange panels{w, panel_begin, min64(panel_end, ceil_div(w.rows, kRowsPerPanel))};
  if (x.rows <= Kernel::kMaxTile) {
    stream_tokens<Kernel>(panels, x, y, y_stride);
  } else {
    block_tokens<Kernel>(panels, x, y, y_stride);
  }
}

}  // namespace
}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
