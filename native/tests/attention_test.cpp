// Attention of every set has the reference's bits: all tile sizes, head sizes, key ranges at the edges of pages and
// blocks, queries that see different keys or none, and keys that overflowed fp16 but must not reach who cannot see
// them.
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

}  // namespace

int main() {
  for (const KernelSet* set : tokenmill::test::sets_to_test()) {
    check(*set);
  }
  return tokenmill::test::finish();
}
