// The loops around the dot kernels of a set with panels of 16 rows: cuts tokens into tiles, K into blocks, and packs
// the activations of a block into records that the kernels read with one broadcast load per use.
//
// Up to one tile of tokens: `stream` runs over whole panels straight from the packed weights, expanding them in
// registers (memory speed is the limit). More tokens: a block of a panel is expanded once, by the first tile, into a
// small scratch that stays in the first-level cache, and every tile of tokens runs over it (arithmetic is the limit).
// Both visit the groups of a row in ascending order and keep the running sums in y between blocks, so tiling cannot
// change a result.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "contract/kernel_set.h"
#include "kernels/shared/pack_panel16_layout-inl.h"

// Unrolled code takes minutes to compile where every access is instrumented or every instruction is emulated: those
// builds keep the loops.
#if defined(SIMDE_NO_INLINE) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TOKENMILL_KEEP_LOOPS
#define TOKENMILL_INLINE inline
#define TOKENMILL_LAMBDA
#else
#define TOKENMILL_INLINE inline __attribute__((always_inline))
#define TOKENMILL_LAMBDA __attribute__((always_inline))
#endif

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

constexpr int kMaxTileTokens = 6;
constexpr int kMinBlockTile = 3;  // more than one tile, cut evenly: seven tokens give three and four

template <int kIndex>
struct Index {
  static constexpr int value = kIndex;
};

// body(Index<kBegin>{}), ..., body(Index<kEnd - 1>{}). Indices are constants from the start, so that arrays of
// registers are registers: after a loop is unrolled it is too late for GCC 12 to see that.
#ifdef TOKENMILL_KEEP_LOOPS
struct LoopIndex {
  int value;
};

template <int kBegin, int kEnd, typename Body>
inline void unrolled(const Body& body) {
  for (int i = kBegin; i < kEnd; ++i) {
    body(LoopIndex{i});
  }
}
#else
template <int kBegin, int kEnd, typename Body>
TOKENMILL_INLINE void unrolled(const Body& body) {
  if constexpr (kBegin < kEnd) {
    body(Index<kBegin>{});
    unrolled<kBegin + 1, kEnd>(body);
  }
}
#endif

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

// `width` running sums per token, with `stride` floats between tokens. Where the matrix ends after `lanes` rows they
// live in a local copy, because nothing may be written there.
template <int kWidth, typename Run>
TOKENMILL_INLINE void with_sums(float* y, int64_t y_stride, int tokens, int64_t lanes, bool first, const Run& run) {
  if (lanes >= kWidth) {
    run(y, y_stride);
    return;
  }
  alignas(64) float sums[kMaxTileTokens * kWidth] = {};
  const auto bytes = static_cast<size_t>(lanes) * sizeof(float);
  if (!first) {
    for (int t = 0; t < tokens; ++t) {
      std::memcpy(sums + t * kWidth, y + t * y_stride, bytes);
    }
  }
  run(sums, static_cast<int64_t>(kWidth));
  for (int t = 0; t < tokens; ++t) {
    std::memcpy(y + t * y_stride, sums + t * kWidth, bytes);
  }
}

// Calls run(Index<tile>{}) for the run-time `tile` in kMinTile .. kMaxTile.
template <int kMaxTile, int kMinTile, typename Run>
TOKENMILL_INLINE void dispatch_tile(int tile, const Run& run) {
  if constexpr (kMaxTile > kMinTile) {
    if (tile < kMaxTile) {
      dispatch_tile<kMaxTile - 1, kMinTile>(tile, run);
      return;
    }
  }
  run(Index<kMaxTile>{});
}

struct PanelRange {
  const PackedMatrix& w;
  int64_t begin;
  int64_t end;

  const uint8_t* panel(int64_t p) const { return w.data + static_cast<uint64_t>(p) * w.panel_bytes; }
  int64_t lanes(int64_t p) const { return w.rows - p * kRowsPerPanel; }
};

constexpr int kActivationWords = 40 * 1024;  // 160 KiB on the stack
constexpr uint64_t kAheadBytes = 4096;       // prefetch distance in a stream of weights

// One tile of tokens: every panel is read once, from memory, several side by side where that pays.
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
    dispatch_tile<kMaxTileTokens, 1>(tile, [&](auto t) {
      constexpr int kTokens = decltype(t)::value;
      constexpr int kPanels = Kernel::stream_panels(kTokens);
      const auto run = [&](auto side_by_side, int64_t p) {
        constexpr int kSideBySide = decltype(side_by_side)::value;
        with_sums<kSideBySide * kRowsPerPanel>(
            y + p * kRowsPerPanel, y_stride, kTokens, panels.lanes(p), first, [&](float* sums, int64_t stride) {
              Kernel::template stream<kTokens, kSideBySide>(panels.panel(p) + offset, panels.w.panel_bytes, count,
                                                            records, sums, stride, first, kAheadBytes);
            });
      };
      int64_t p = panels.begin;
      for (; p + kPanels <= panels.end; p += kPanels) {
        run(Index<kPanels>{}, p);
      }
      for (; p < panels.end; ++p) {
        run(Index<1>{}, p);
      }
    });
  }
}

// The tokens [begin, end) that a call's block or tile number `i` of `count` takes: as even as can be.
struct TokenSpan {
  int64_t begin;
  int64_t size;
};

constexpr TokenSpan token_span(int64_t tokens, int64_t i, int64_t count) {
  const int64_t begin = tokens * i / count;
  return {begin, tokens * (i + 1) / count - begin};
}

// One block of K of one block of tokens, for kPanels panels from p on. The first tile of tokens expands the weights.
template <typename Kernel, int kPanels>
TOKENMILL_INLINE void multiply_block(const PanelRange& panels, int64_t p, int64_t offset, int64_t count,
                                     const int32_t* records, int64_t tokens, bool first, uint8_t* block, float* y,
                                     int64_t y_stride) {
  constexpr int64_t kTokenWords = static_cast<int64_t>(Kernel::kBlockGroups) * (Kernel::kQuadWords + 4);
  const int64_t tiles = ceil_div(tokens, kMaxTileTokens);
  for (int64_t i = 0; i < tiles; ++i) {
    const TokenSpan span = token_span(tokens, i, tiles);
    const int32_t* tile_records = records + span.begin * kTokenWords;
    const auto tile = static_cast<int>(span.size);
    with_sums<kPanels * kRowsPerPanel>(
        y + span.begin * y_stride + p * kRowsPerPanel, y_stride, tile, panels.lanes(p), first,
        [&](float* sums, int64_t stride) {
          dispatch_tile<kMaxTileTokens, kMinBlockTile>(tile, [&](auto t) {
            constexpr int kTokens = decltype(t)::value;
            if (i == 0) {
              Kernel::template expand<kTokens, kPanels>(panels.panel(p) + offset, panels.w.panel_bytes, count,
                                                        tile_records, sums, stride, first, block);
            } else {
              Kernel::template again<kTokens, kPanels>(block, count, tile_records, sums, stride, first);
            }
          });
        });
  }
}

// Many tokens: blocks of K are expanded once per panel and used by every tile of a block of tokens.
template <typename Kernel>
void block_tokens(const PanelRange& panels, const Activations& x, float* y, int64_t y_stride) {
  alignas(64) int32_t records[kActivationWords];
  alignas(64) uint8_t expanded[Kernel::kExpandedPanels * Kernel::kBlockBytes];
  constexpr int64_t kBlock = Kernel::kBlockGroups;
  constexpr int64_t kTokenWords = kBlock * (Kernel::kQuadWords + 4);
  const int64_t groups = x.k / kGroupSize;
  const int64_t token_blocks = ceil_div(x.rows, kActivationWords / kTokenWords);
  for (int64_t b = 0; b < token_blocks; ++b) {
    const TokenSpan block = token_span(x.rows, b, token_blocks);
    const int64_t tiles = ceil_div(block.size, kMaxTileTokens);
    float* out = y + block.begin * y_stride;
    for (int64_t g = 0; g < groups; g += kBlock) {
      const int64_t count = min64(kBlock, groups - g);
      const int64_t offset = g / kGroupsPerUnit * unit_layout(Kernel::kFormat, kGroupsPerUnit).bytes;
      for (int64_t i = 0; i < tiles; ++i) {
        const TokenSpan span = token_span(block.size, i, tiles);
        pack_activations<Kernel>(x, block.begin + span.begin, static_cast<int>(span.size), g, g + count,
                                 records + span.begin * kTokenWords);
      }
      int64_t p = panels.begin;
      for (; p + Kernel::kExpandedPanels <= panels.end; p += Kernel::kExpandedPanels) {
        multiply_block<Kernel, Kernel::kExpandedPanels>(panels, p, offset, count, records, block.size, g == 0, expanded,
                                                        out, y_stride);
      }
      for (; p < panels.end; ++p) {
        multiply_block<Kernel, 1>(panels, p, offset, count, records, block.size, g == 0, expanded, out, y_stride);
      }
    }
  }
}

template <typename Kernel>
TOKENMILL_INLINE void matmul_integer(const PackedMatrix& w, const Activations& x, int64_t panel_begin,
                                     int64_t panel_end, float* y, int64_t y_stride) {
  const PanelRange panels{w, panel_begin, min64(panel_end, ceil_div(w.rows, kRowsPerPanel))};
  if (x.rows <= kMaxTileTokens) {
    stream_tokens<Kernel>(panels, x, y, y_stride);
  } else {
    block_tokens<Kernel>(panels, x, y, y_stride);
  }
}

}  // namespace
}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
