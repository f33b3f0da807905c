// The loops around the dot kernels of a set with panels of 16 rows: tiles of tokens (activation_records-inl.h) over
// blocks of K.
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
#include "kernels/shared/activation_records-inl.h"
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

constexpr uint64_t kAheadBytes = 4096;  // prefetch distance in a stream of weights
constexpr int64_t kBlockWords =
    40 * 1024;  // activations of a block of tokens and of K: they stay in the second-level cache

// One tile of tokens: every panel is read once, from memory, several side by side where that pays.
template <typename Kernel>
void stream_tokens(const PanelRange& panels, const Activations& x, float* y, int64_t y_stride) {
  const int64_t groups = x.k / kGroupSize;
  dispatch_tile<kMaxStreamTokens, 1>(static_cast<int>(x.rows), [&](auto t) {
    constexpr int kTokens = decltype(t)::value;
    constexpr int kPanels = Kernel::stream_panels(kTokens);
    const auto run = [&](auto side_by_side, int64_t p) {
      constexpr int kSideBySide = decltype(side_by_side)::value;
      with_sums<kSideBySide * kRowsPerPanel>(
          y + p * kRowsPerPanel, y_stride, kTokens, panels.lanes(p), true, [&](float* sums, int64_t stride) {
            Kernel::template stream<kTokens, kSideBySide>(panels.panel(p), panels.w.panel_bytes, groups, x.packed, sums,
                                                          stride, kAheadBytes);
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

// Groups [begin, begin + count) of a row, and tiles [tile_begin, tile_end) of the tokens.
struct Block {
  int64_t begin;
  int64_t count;
  int64_t tile_begin;
  int64_t tile_end;
};

// One block of kPanels panels from p on. The first tile of tokens expands the weights.
template <typename Kernel, int kPanels>
TOKENMILL_INLINE void multiply_block(const PanelRange& panels, int64_t p, const Block& block, const Activations& x,
                                     const ActivationTiles& tiles, uint8_t* expanded, float* y, int64_t y_stride) {
  const int64_t offset = block.begin / kGroupsPerUnit * unit_layout(Kernel::kFormat, kGroupsPerUnit).bytes;
  const bool first = block.begin == 0;
  for (int64_t i = block.tile_begin; i < block.tile_end; ++i) {
    const TokenSpan span = tiles.tile(i);
    const int32_t* records = x.packed + tiles.word(span, block.begin);
    const auto size = static_cast<int>(span.size);
    with_sums<kPanels * kRowsPerPanel>(
        y + span.begin * y_stride + p * kRowsPerPanel, y_stride, size, panels.lanes(p), first,
        [&](float* sums, int64_t stride) {
          dispatch_tile<kMaxBlockTile, kMinBlockTile>(size, [&](auto t) {
            constexpr int kTokens = decltype(t)::value;
            if (i == block.tile_begin) {
              Kernel::template expand<kTokens, kPanels>(panels.panel(p) + offset, panels.w.panel_bytes, block.count,
                                                        records, sums, stride, first, expanded);
            } else {
              Kernel::template again<kTokens, kPanels>(expanded, block.count, records, sums, stride, first);
            }
          });
        });
  }
}

// Many tokens: blocks of K are expanded once per panel and used by every tile of a block of tokens.
template <typename Kernel>
void block_tokens(const PanelRange& panels, const Activations& x, float* y, int64_t y_stride) {
  alignas(64) uint8_t expanded[Kernel::kExpandedPanels * Kernel::kBlockBytes];
  constexpr int64_t kTilesPerBlock =
      kBlockWords / (int64_t{Kernel::kBlockGroups} * ActivationRecord{kMaxBlockTile, Kernel::kQuadWords}.words());
  const ActivationTiles tiles{x.rows, x.k / kGroupSize, Kernel::kQuadWords};
  const int64_t token_blocks = ceil_div(tiles.count(), kTilesPerBlock);
  for (int64_t b = 0; b < token_blocks; ++b) {
    const TokenSpan tile_span = even_span(tiles.count(), b, token_blocks);
    for (int64_t g = 0; g < tiles.groups; g += Kernel::kBlockGroups) {
      const Block block{g, min64(Kernel::kBlockGroups, tiles.groups - g), tile_span.begin,
                        tile_span.begin + tile_span.size};
      int64_t p = panels.begin;
      for (; p + Kernel::kExpandedPanels <= panels.end; p += Kernel::kExpandedPanels) {
        multiply_block<Kernel, Kernel::kExpandedPanels>(panels, p, block, x, tiles, expanded, y, y_stride);
      }
      for (; p < panels.end; ++p) {
        multiply_block<Kernel, 1>(panels, p, block, x, tiles, expanded, y, y_stride);
      }
    }
  }
}

template <typename Kernel>
TOKENMILL_INLINE void matmul_integer(const PackedMatrix& w, const Activations& x, int64_t panel_begin,
                                     int64_t panel_end, float* y, int64_t y_stride) {
  const PanelRange panels{w, panel_begin, min64(panel_end, ceil_div(w.rows, kRowsPerPanel))};
  if (x.rows <= kMaxStreamTokens) {
    stream_tokens<Kernel>(panels, x, y, y_stride);
  } else {
    block_tokens<Kernel>(panels, x, y, y_stride);
  }
}

}  // namespace
}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
