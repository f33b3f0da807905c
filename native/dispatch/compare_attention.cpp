#include <algorithm>
#include <cmath>
#include <limits>

#include "dispatch/compare_report.h"
#include "dispatch/compare_sets.h"
#include "dispatch/kernel_registry.h"

namespace tokenmill {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr uint16_t kHalfNan = 0x7E00;
constexpr uint16_t kHalfInfinity = 0x7C00;

// Queries, key ranges and pages of one block. Only pages with a visible key exist, and keys that nobody sees are NaN:
// reading either shows.
class AttentionCase {
 public:
  AttentionCase(ValueKind kind, const AttentionShape& shape, uint64_t seed) : shape_(shape), random_(seed) {
    make_ranges();
    queries_ = random_floats(random_, kind, shape.queries * stride());
    if (kind == ValueKind::extreme) {  // scores that differ by hundreds, so that most weights vanish
      for (float& query : queries_) {
        query = 40.0F * random_.unit();
      }
    }
    std::fill_n(key_pages_, kPagesPerBlock, nullptr);
    std::fill_n(value_pages_, kPagesPerBlock, nullptr);
    pages_.reserve(2 * kPagesPerBlock);
    for (int32_t page = 0; page < kPagesPerBlock; ++page) {
      if (visible(page * kPageTokens, (page + 1) * kPageTokens)) {
        make_page(kind, page);
      }
    }
  }

  // Output of one set: maxima, sums and outputs, one after another.
  std::vector<float> run(const KernelSet& set) const {
    const int64_t queries = shape_.queries;
    std::vector<float> result(unsigned_size(queries * (2 + shape_.head_dim)), kUntouched);
    const AlignedBytes scratch(unsigned_size(queries) * kAttentionBlockTokens * sizeof(float));
    AttentionBlock block{};
    block.queries = queries_.data();
    block.query_stride = stride();
    block.query_count = shape_.queries;
    block.head_dim = shape_.head_dim;
    block.score_scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
    block.key_begin = begin_.data();
    block.key_end = end_.data();
    block.key_pages = key_pages_;
    block.value_pages = value_pages_;
    block.max = result.data();
    block.sum = result.data() + queries;
    block.output = result.data() + 2 * queries;
    block.scratch = reinterpret_cast<float*>(scratch.data());
    set.attention_block(block);
    return result;
  }

 private:
  int64_t stride() const { return shape_.head_dim + 8; }

  void make_ranges() {
    for (int32_t i = 0; i < shape_.queries; ++i) {
      int32_t begin = shape_.key_begin;
      int32_t end = shape_.key_end;
      switch (shape_.ranges) {
        case AttentionShape::Ranges::same:
          break;
        case AttentionShape::Ranges::window:
          begin += i;
          [[fallthrough]];
        case AttentionShape::Ranges::causal:
          end += i;
          break;
        case AttentionShape::Ranges::random:
          begin = static_cast<int32_t>(random_.below(kAttentionBlockTokens));
          end = begin + static_cast<int32_t>(random_.below(kAttentionBlockTokens) - 40);
          break;
      }
      end = std::min<int32_t>(end, kAttentionBlockTokens);
      begin_.push_back(std::min(begin, end < 0 ? 0 : end));
      end_.push_back(std::max(end, begin_.back()));
    }
  }

  bool visible(int32_t first, int32_t last) const {
    for (uint64_t i = 0; i < begin_.size(); ++i) {
      if (begin_[i] < end_[i] && begin_[i] < last && first < end_[i]) {
        return true;
      }
    }
    return false;
  }

  uint16_t random_half(ValueKind kind) {
    const auto bits = static_cast<uint16_t>(random_.next());
    if (kind == ValueKind::extreme && random_.below(4) == 0) {
      return static_cast<uint16_t>(bits & 0xBBFFU);  // anything below 1, denormals among them
    }
    const auto exponent = static_cast<uint16_t>(12 + random_.below(5));
    return static_cast<uint16_t>((bits & 0x83FFU) | (exponent << 10));
  }

  void make_page(ValueKind kind, int32_t page) {
    const int32_t head_dim = shape_.head_dim;
    std::vector<uint16_t> keys(unsigned_size(head_dim) * kPageTokens);
    std::vector<uint16_t> values(keys.size());
    for (int32_t slot = 0; slot < kPageTokens; ++slot) {
      const int32_t position = page * kPageTokens + slot;
      const bool seen = visible(position, position + 1);
      const bool overflowed = kind == ValueKind::extreme && random_.below(200) == 0;
      for (int32_t d = 0; d < head_dim; ++d) {
        keys[unsigned_size(d * kPageTokens + slot)] = seen ? random_half(kind) : kHalfNan;
        values[unsigned_size(slot * head_dim + d)] = seen ? random_half(kind) : kHalfNan;
      }
      if (seen && overflowed) {  // it must only reach the queries that see it
        keys[unsigned_size(random_.below(head_dim) * kPageTokens + slot)] = kHalfInfinity;
        values[unsigned_size(slot * head_dim + random_.below(head_dim))] = kHalfInfinity;
      }
    }
    pages_.push_back(std::move(keys));
    key_pages_[page] = pages_.back().data();
    pages_.push_back(std::move(values));
    value_pages_[page] = pages_.back().data();
  }

  AttentionShape shape_;
  TestRandom random_;
  std::vector<float> queries_;
  std::vector<int32_t> begin_;
  std::vector<int32_t> end_;
  std::vector<std::vector<uint16_t>> pages_;
  const uint16_t* key_pages_[kPagesPerBlock];
  const uint16_t* value_pages_[kPagesPerBlock];
};

}  // namespace

std::string compare_attention_block(const KernelSet& set, ValueKind kind, const AttentionShape& shape, uint64_t seed) {
  const AttentionCase attention(kind, shape, seed);
  return difference(describe("attention_block", {{"queries", shape.queries},
                                                 {"head_dim", shape.head_dim},
                                                 {"key_begin", shape.key_begin},
                                                 {"key_end", shape.key_end},
                                                 {"ranges", static_cast<int64_t>(shape.ranges)}}),
                    attention.run(set), attention.run(reference_kernel_set()));
}

std::string compare_attention_fold(const KernelSet& set, ValueKind kind, int32_t head_dim, uint64_t seed) {
  TestRandom random(seed);
  const std::vector<float> first = random_floats(random, kind, head_dim);
  const std::vector<float> second = random_floats(random, kind, head_dim);
  const float maxima[] = {kMinusInfinity, 0.0F, -0.0F, 3.5F * random.unit(), 100.0F, -100.0F};
  for (const float max : maxima) {
    for (const float block_max : maxima) {
      std::vector<float> got = first;
      std::vector<float> want = first;
      got.insert(got.end(), {max, 2.0F + random.unit()});
      want.insert(want.end(), got.end() - 2, got.end());
      for (std::vector<float>* state : {&got, &want}) {
        float* values = state->data();
        const auto fold = state == &got ? set.attention_fold : reference_kernel_set().attention_fold;
        fold(values + head_dim, values + head_dim + 1, values, block_max, 1.25F, second.data(), head_dim);
      }
      std::string result = difference(describe("attention_fold", {{"head_dim", head_dim}}), got, want);
      if (!result.empty()) {
        return result;
      }
    }
  }
  return "";
}

std::string compare_attention_finish(const KernelSet& set, int32_t head_dim, uint64_t seed) {
  TestRandom random(seed);
  const std::vector<float> output = random_floats(random, ValueKind::plain, head_dim);
  const float sum = 2.0F + random.unit();
  std::vector<float> got(output.size(), kUntouched);
  std::vector<float> want(output.size(), kUntouched);
  set.attention_finish(output.data(), sum, head_dim, got.data());
  reference_kernel_set().attention_finish(output.data(), sum, head_dim, want.data());
  return difference(describe("attention_finish", {{"head_dim", head_dim}}), got, want);
}

}  // namespace tokenmill
