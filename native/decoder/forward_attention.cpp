#include <algorithm>
#include <limits>

#include "decoder/forward_pass.h"

namespace tokenmill {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

}  // namespace

void ForwardPass::store_row(size_t layer, int64_t row, const float* key, const float* value) {
  const AttentionPlan& plan = plan_.layers[layer].attention;
  const RowInfo& info = rows_[static_cast<size_t>(row)];
  const int32_t* pages = input_->page_table.data() + input_->page_starts[static_cast<size_t>(info.sequence)];
  const int32_t page = pages[info.position / kPageTokens];
  const int32_t slot = info.position % kPageTokens;
  for (int32_t head = 0; head < plan.kv_head_count; ++head) {
    kernels_.store_kv(key + int64_t{head} * plan.head_dim, value + int64_t{head} * plan.head_dim, plan.head_dim, slot,
                      kv_.keys(page, static_cast<int32_t>(layer), head),
                      kv_.values(page, static_cast<int32_t>(layer), head));
  }
}

void ForwardPass::attend(int thread, size_t layer) {
  const AttentionSchedule& schedule = schedules_[static_cast<size_t>(ops_.layers[layer].schedule)];
  const int64_t kv_heads = schedule.geometry().kv_head_count;
  const int64_t total = static_cast<int64_t>(schedule.units().size()) * kv_heads;
  // Several to a piece, so that a batch of short sequences does not pay the counter for each head.
  const int64_t piece = std::max<int64_t>(1, total / (pool_.size() * 16));
  run_phase(thread, Phase::attention, total, piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      attend_unit(threads_[static_cast<size_t>(thread)], layer, schedule,
                  schedule.units()[static_cast<size_t>(i / kv_heads)], static_cast<int32_t>(i % kv_heads));
    }
  });
}

void ForwardPass::attend_unit(ThreadScratch& scratch, size_t layer, const AttentionSchedule& schedule,
                              const AttentionUnit& unit, int32_t kv_head) {
  const AttentionPlan& plan = plan_.layers[layer].attention;
  const QueryTile& tile = schedule.tiles()[static_cast<size_t>(unit.tile)];
  const int32_t group = schedule.geometry().group;
  const int32_t queries = (tile.row_end - tile.row_begin) * group;
  const int64_t head_dim = plan.head_dim;
  if (tile.split) {
    const int64_t blocks = tile.block_end - tile.block_begin;
    for (int32_t block = unit.block_begin; block < unit.block_end; ++block) {
      const int64_t at = tile.partial_begin + (kv_head * blocks + (block - tile.block_begin)) * queries;
      attend_block(scratch, layer, tile, block, kv_head, partial_max_.data() + at, partial_sum_.data() + at,
                   partial_output_.data() + at * head_dim);
    }
    return;
  }
  float* state_output = scratch.state_output.data();
  // The first block becomes the state, as folding it into an empty state would make it.
  attend_block(scratch, layer, tile, unit.block_begin, kv_head, scratch.state_max.data(), scratch.state_sum.data(),
               state_output);
  for (int32_t block = unit.block_begin + 1; block < unit.block_end; ++block) {
    attend_block(scratch, layer, tile, block, kv_head, scratch.block_max.data(), scratch.block_sum.data(),
                 scratch.block_output.data());
    for (int32_t i = 0; i < queries; ++i) {
      const size_t at = static_cast<size_t>(i);
      kernels_.attention_fold(&scratch.state_max[at], &scratch.state_sum[at], state_output + i * head_dim,
                              scratch.block_max[at], scratch.block_sum[at], scratch.block_output.data() + i * head_dim,
                              plan.head_dim);
    }
  }
  const int64_t query_dim = plan.head_count * head_dim;
  for (int32_t i = 0; i < queries; ++i) {
    const int64_t row = tile.row_begin + i / group;
    const int64_t head = int64_t{kv_head} * group + i % group;
    kernels_.attention_finish(state_output + i * head_dim, scratch.state_sum[static_cast<size_t>(i)], plan.head_dim,
                              query_.data() + row * query_dim + head * head_dim);
  }
}

void ForwardPass::attend_block(ThreadScratch& scratch, size_t layer, const QueryTile& tile, int32_t block,
                               int32_t kv_head, float* max, float* sum, float* output) {
  const AttentionPlan& plan = plan_.layers[layer].attention;
  const int32_t group = plan.head_count / plan.kv_head_count;
  const int32_t tokens = tile.row_end - tile.row_begin;
  const int32_t block_start = block * kAttentionBlockTokens;
  int32_t first_key = kAttentionBlockTokens;
  int32_t last_key = 0;
  for (int32_t i = 0; i < tokens; ++i) {
    const int32_t position = tile.first_position + i;
    const int32_t end = std::clamp(position + 1 - block_start, 0, kAttentionBlockTokens);
    const int32_t begin = plan.window > 0 ? std::clamp(position + 1 - plan.window - block_start, 0, end) : 0;
    std::fill_n(scratch.key_begin.begin() + i * group, group, begin);
    std::fill_n(scratch.key_end.begin() + i * group, group, end);
    first_key = std::min(first_key, begin);
    last_key = std::max(last_key, end);
  }
  const uint16_t* key_pages[kPagesPerBlock] = {};
  const uint16_t* value_pages[kPagesPerBlock] = {};
  const int32_t* pages = input_->page_table.data() + input_->page_starts[static_cast<size_t>(tile.sequence)] +
                         int64_t{block} * kPagesPerBlock;
  for (int32_t i = first_key / kPageTokens; i * kPageTokens < last_key; ++i) {
    key_pages[i] = kv_.keys(pages[i], static_cast<int32_t>(layer), kv_head);
    value_pages[i] = kv_.values(pages[i], static_cast<int32_t>(layer), kv_head);
  }
  const int64_t group_dim = int64_t{group} * plan.head_dim;
  AttentionBlock call{};
  call.queries = grouped_.data() + (kv_head * input_->rows() + tile.row_begin) * group_dim;
  call.query_stride = plan.head_dim;
  call.query_count = tokens * group;
  call.head_dim = plan.head_dim;
  call.score_scale = plan.score_scale;
  call.key_begin = scratch.key_begin.data();
  call.key_end = scratch.key_end.data();
  call.key_pages = key_pages;
  call.value_pages = value_pages;
  call.max = max;
  call.sum = sum;
  call.output = output;
  call.scratch = scratch.scores.data();
  kernels_.attention_block(call);
}

void ForwardPass::fold_split_row(int thread, size_t layer, const QueryTile& tile, int64_t row) {
  const AttentionPlan& plan = plan_.layers[layer].attention;
  const int64_t head_dim = plan.head_dim;
  const int64_t group = plan.head_count / plan.kv_head_count;
  const int64_t queries = (tile.row_end - tile.row_begin) * group;
  const int64_t blocks = tile.block_end - tile.block_begin;
  float* state = threads_[static_cast<size_t>(thread)].state_output.data();
  for (int64_t head = 0; head < plan.head_count; ++head) {
    const int64_t query = (row - tile.row_begin) * group + head % group;
    float max = kMinusInfinity;
    float sum = 0.0F;
    std::fill_n(state, head_dim, 0.0F);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t at = tile.partial_begin + (head / group * blocks + block) * queries + query;
      kernels_.attention_fold(&max, &sum, state, partial_max_.data()[at], partial_sum_.data()[at],
                              partial_output_.data() + at * head_dim, plan.head_dim);
    }
    kernels_.attention_finish(state, sum, plan.head_dim,
                              query_.data() + row * plan.head_count * head_dim + head * head_dim);
  }
}

}  // namespace tokenmill
