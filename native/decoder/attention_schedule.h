// Cuts the attention of a step into pieces of work.
#pragma once
#include <cstdint>
#include <vector>

#include "decoder/step.h"

namespace tokenmill {

// Layers that share these share a schedule.
struct AttentionGeometry {
  int32_t kv_head_count;
  int32_t group;  // query heads per KV head
  int32_t window;

  bool operator==(const AttentionGeometry&) const = default;
};

// Consecutive tokens of one sequence; the query heads of a group times these tokens read a key together.
struct QueryTile {
  int32_t sequence;
  int32_t row_begin;  // rows of the batch
  int32_t row_end;
  int32_t first_position;
  int32_t block_begin;  // blocks of 256 keys that any of its queries sees
  int32_t block_end;
  bool split;             // several threads may take its blocks; each block's result is kept
  int64_t partial_begin;  // when split: index of its first (KV head, block, query) result
};

// Blocks of one tile that one thread computes, for one KV head. All of them unless the tile is split.
struct AttentionUnit {
  int32_t tile;
  int32_t block_begin;
  int32_t block_end;
};

// The largest number of queries (heads of a group times tokens) in one tile of this geometry.
int32_t max_tile_queries(int32_t group);

class AttentionSchedule {
 public:
  explicit AttentionSchedule(const AttentionGeometry& geometry) : geometry_(geometry) {}

  const AttentionGeometry& geometry() const { return geometry_; }
  // Replaces the schedule by that of `input` for `threads` threads.
  void build(const StepInput& input, int threads);

  const std::vector<QueryTile>& tiles() const { return tiles_; }
  const std::vector<AttentionUnit>& units() const { return units_; }
  // By row; -1 where the row's tile is not split.
  const std::vector<int32_t>& split_tile_of_row() const { return split_tile_of_row_; }
  // Results of single blocks to be kept; 0 when nothing is split.
  int64_t partial_count() const { return partial_count_; }

 private:
  void add_tiles(const StepInput& input, int32_t sequence);

  AttentionGeometry geometry_;
  std::vector<QueryTile> tiles_;
  std::vector<AttentionUnit> units_;
  std::vector<int32_t> split_tile_of_row_;
  int64_t partial_count_ = 0;
};

}  // namespace tokenmill
