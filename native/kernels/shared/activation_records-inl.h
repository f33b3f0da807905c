// Quantized activations as the dot kernels of a set with panels of 16 rows read them: tiles of tokens, and in a tile
// one record per group of 32, so that every value is one broadcast load away. All threads read what was packed once.
#pragma once
#include <cstdint>
#include <cstring>

#include "contract/kernel_set.h"

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

constexpr int kMaxStreamTokens = 8;  // up to here one tile, straight from the packed weights
constexpr int kMaxBlockTile = 6;     // more tokens are cut evenly into tiles that registers hold better
constexpr int kMinBlockTile = 4;     // of nine tokens: four and five
constexpr int kMaxTileTokens = kMaxStreamTokens;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct TokenSpan {
  int64_t begin;
  int64_t size;
};

// Part `i` of `count` parts of [0, total), as even as can be.
constexpr TokenSpan even_span(int64_t total, int64_t i, int64_t count) {
  const int64_t begin = total * i / count;
  return {begin, total * (i + 1) / count - begin};
}

// Where the records of a batch lie: tile after tile, in a tile group after group.
struct ActivationTiles {
  int64_t tokens;
  int64_t groups;
  int quad_words;

  constexpr int64_t count() const { return tokens <= kMaxStreamTokens ? 1 : ceil_div(tokens, kMaxBlockTile); }
  constexpr TokenSpan tile(int64_t i) const { return even_span(tokens, i, count()); }
  constexpr int64_t words() const { return tokens * groups * (quad_words + 4); }
  constexpr int64_t word(const TokenSpan& tile, int64_t group) const {
    return (tile.begin * groups + tile.size * group) * (quad_words + 4);
  }
};

// Writes what tokens [begin, end) have in the records of the batch.
template <typename Kernel>
void pack_tokens(const Activations& x, int64_t begin, int64_t end, int32_t* packed) {
  const ActivationTiles tiles{x.rows, x.k / kGroupSize, Kernel::kQuadWords};
  for (int64_t i = 0; i < tiles.count(); ++i) {
    const TokenSpan tile = tiles.tile(i);
    const ActivationRecord record{static_cast<int>(tile.size), Kernel::kQuadWords};
    for (int64_t t = 0; t < tile.size; ++t) {
      const int64_t token = tile.begin + t;
      if (token < begin || token >= end) continue;
      int32_t* to = packed + tiles.word(tile, 0);
      for (int64_t g = 0; g < tiles.groups; ++g, to += record.words()) {
        const int64_t at = token * tiles.groups + g;
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
}

}  // namespace
}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
