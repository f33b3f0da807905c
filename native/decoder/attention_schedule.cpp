#include "decoder/attention_schedule.h"

#include <algorithm>

#include "contract/kernel_set.h"

namespace tokenmill {
namespace {

// Enough queries to pay for converting a key to binary32 once; few enough that their scores of a block stay in L1/L2.
constexpr int32_t kTileQueries = 32;
// Pieces per thread below which a tile with many blocks is split among threads.
constexpr int64_t kPiecesPerThread = 3;

int64_t queries(const QueryTile& tile, int32_t group) { return int64_t{tile.row_end - tile.row_begin} * group; }

}  // namespace

int32_t max_tile_queries(int32_t group) { return std::max(kTileQueries, group); }

void AttentionSchedule::add_tiles(const StepInput& input, int32_t sequence) {
  const size_t s = static_cast<size_t>(sequence);
  const int32_t tokens_per_tile = std::max(1, kTileQueries / geometry_.group);
  for (int32_t row = input.starts[s]; row < input.starts[s + 1]; row += tokens_per_tile) {
    const int32_t row_end = std::min(row + tokens_per_tile, input.starts[s + 1]);
    const int32_t first = input.positions[s] + (row - input.starts[s]);
    const int32_t last = first + (row_end - row) - 1;
    const int32_t first_key = geometry_.window > 0 ? std::max(0, first + 1 - geometry_.window) : 0;
    tiles_.push_back(
        {sequence, row, row_end, first, first_key / kAttentionBlockTokens, last / kAttentionBlockTokens + 1, false, 0});
  }
}

void AttentionSchedule::build(const StepInput& input, int threads) {
  tiles_.clear();
  units_.clear();
  partial_count_ = 0;
  for (int32_t s = 0; s < input.sequences(); ++s) add_tiles(input, s);

  int64_t total = 0;  // cost in query-blocks, over all KV heads
  for (const QueryTile& tile : tiles_) {
    total += queries(tile, geometry_.group) * (tile.block_end - tile.block_begin) * geometry_.kv_head_count;
  }
  const int64_t target = threads == 1 ? total : std::max<int64_t>(1, total / (threads * kPiecesPerThread));
  for (size_t i = 0; i < tiles_.size(); ++i) {
    QueryTile& tile = tiles_[i];
    const int64_t blocks = tile.block_end - tile.block_begin;
    const int64_t at_once = std::clamp<int64_t>(target / queries(tile, geometry_.group), 1, blocks);
    tile.split = at_once < blocks;
    if (tile.split) {
      tile.partial_begin = partial_count_;
      partial_count_ += queries(tile, geometry_.group) * blocks * geometry_.kv_head_count;
    }
    for (int32_t block = tile.block_begin; block < tile.block_end; block += static_cast<int32_t>(at_once)) {
      units_.push_back(
          {static_cast<int32_t>(i), block, std::min(block + static_cast<int32_t>(at_once), tile.block_end)});
    }
  }
  // Long pieces first: whoever finishes early takes the short ones that are left.
  std::stable_sort(units_.begin(), units_.end(), [this](const AttentionUnit& a, const AttentionUnit& b) {
    const auto cost = [this](const AttentionUnit& unit) {
      return queries(tiles_[static_cast<size_t>(unit.tile)], geometry_.group) * (unit.block_end - unit.block_begin);
    };
    return cost(a) > cost(b);
  });
  if (partial_count_ == 0) return;
  split_tile_of_row_.assign(static_cast<size_t>(input.rows()), -1);
  for (size_t i = 0; i < tiles_.size(); ++i) {
    if (!tiles_[i].split) continue;
    std::fill(split_tile_of_row_.begin() + tiles_[i].row_begin, split_tile_of_row_.begin() + tiles_[i].row_end,
              static_cast<int32_t>(i));
  }
}

}  // namespace tokenmill
