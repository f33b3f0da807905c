// Attention of every set has the reference's bits: all tile sizes, head sizes, key ranges at the edges of pages and
// blocks, queries that see different keys or none, and keys that overflowed fp16 but must not reach who cannot see
// them.
#include <cmath>

#include "check.h"
#include "dispatch/compare_sets.h"
#include "sets_to_test.h"

namespace {

using tokenmill::KernelSet;
using tokenmill::ValueKind;
using tokenmill::test::expect_same;
using Ranges = tokenmill::AttentionShape::Ranges;

constexpr ValueKind kKinds[] = {ValueKind::plain, ValueKind::extreme};
constexpr int32_t kHeadDims[] = {8, 64, 72, 80, 96, 128, 256};

uint64_t next_seed() {
  static uint64_t seed = 0;
  return ++seed;
}

void check_block(const KernelSet& set, int32_t queries, int32_t head_dim) {
  constexpr struct {
    int32_t begin;
    int32_t end;
  } kKeyRanges[] = {{0, 1}, {0, 16}, {0, 17}, {5, 6}, {15, 17}, {16, 32}, {1, 100}, {130, 255}, {0, 256}, {255, 256}};
  for (const auto& keys : kKeyRanges) {
    for (const Ranges ranges : {Ranges::same, Ranges::causal, Ranges::window}) {
      for (const ValueKind kind : kKinds) {
        expect_same(set.name,
                    compare_attention_block(set, kind, {queries, head_dim, keys.begin, keys.end, ranges}, next_seed()));
      }
    }
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const ValueKind kind : kKinds) {
      expect_same(set.name, compare_attention_block(set, kind, {queries, head_dim, 0, 0, Ranges::random}, next_seed()));
    }
  }
}

void check(const KernelSet& set) {
  for (int32_t queries = 1; queries <= 13; ++queries) {
    check_block(set, queries, 64);
  }
  for (const int32_t head_dim : kHeadDims) {
    for (const int32_t queries : {1, 2, 3, 4, 8, 15}) {
      check_block(set, queries, head_dim);
    }
    for (const ValueKind kind : kKinds) {
      expect_same(set.name, compare_store_kv(set, kind, head_dim, next_seed()));
      expect_same(set.name, compare_attention_fold(set, kind, head_dim, next_seed()));
    }
    expect_same(set.name, compare_attention_finish(set, head_dim, next_seed()));
  }
}

// A block whose only key overflowed fp16, so that its score is -inf or NaN, must end as a NaN and not count as empty.
void check_overflow_is_seen(const KernelSet& set) {
  constexpr int32_t kHeadDim = 8;
  constexpr uint16_t kHalfInfinity = 0x7C00;
  const std::vector<uint16_t> keys(static_cast<size_t>(kHeadDim) * tokenmill::kPageTokens, kHalfInfinity);
  const std::vector<uint16_t> values(keys.size(), 0);
  const uint16_t* key_pages[tokenmill::kPagesPerBlock] = {keys.data()};
  const uint16_t* value_pages[tokenmill::kPagesPerBlock] = {values.data()};
  const tokenmill::AlignedBytes scratch(tokenmill::kAttentionBlockTokens * sizeof(float));
  const int32_t begin = 0;
  const int32_t end = 1;
  for (const float sign : {-1.0F, 0.0F, 1.0F}) {  // scores -inf, NaN and inf
    const std::vector<float> query(kHeadDim, sign);
    std::vector<float> output(kHeadDim);
    float max = 0.0F;
    float sum = 0.0F;
    tokenmill::AttentionBlock block{};
    block.queries = query.data();
    block.query_stride = kHeadDim;
    block.query_count = 1;
    block.head_dim = kHeadDim;
    block.score_scale = 1.0F;
    block.key_begin = &begin;
    block.key_end = &end;
    block.key_pages = key_pages;
    block.value_pages = value_pages;
    block.max = &max;
    block.sum = &sum;
    block.output = output.data();
    block.scratch = reinterpret_cast<float*>(scratch.data());
    set.attention_block(block);
    std::vector<float> state(kHeadDim, 1.0F);
    float state_max = 1.0F;
    float state_sum = 2.0F;
    set.attention_fold(&state_max, &state_sum, state.data(), max, sum, output.data(), kHeadDim);
    tokenmill::test::expect(std::isnan(state_sum), std::string(set.name) + ": an overflowed key must not vanish");
  }
}

}  // namespace

int main() {
  check_overflow_is_seen(tokenmill::reference_kernel_set());
  for (const KernelSet* set : tokenmill::test::sets_to_test()) {
    check(*set);
    check_overflow_is_seen(*set);
  }
  return tokenmill::test::finish();
}
