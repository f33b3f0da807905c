#include "bench/attention_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "dispatch/compare_report.h"
#include "dispatch/kernel_registry.h"
#include "dispatch/test_data.h"
#include "threads/fp_environment.h"

namespace tokenmill {
namespace {

constexpr uint64_t kSeed = 20260102;

void check_shape(const AttentionBenchShape& shape) {
  const auto require = [](bool valid, const char* rule) {
    if (!valid) throw std::invalid_argument(rule);
  };
  require(shape.context >= 1 && shape.context <= 1 << 20, "the context must be 1 to 1048576 tokens");
  require(shape.tokens >= 1 && shape.tokens <= shape.context, "the tokens must be 1 to the context");
  require(shape.kv_heads >= 1 && shape.kv_heads <= 1024 && shape.group >= 1 && shape.group <= 1024,
          "heads must be 1 to 1024");
  require(shape.head_dim >= 8 && shape.head_dim <= kMaxHeadDim && shape.head_dim % 8 == 0,
          "the head size must be a multiple of 8, at most 256");
}

}  // namespace

AttentionBench::AttentionBench(const KernelSet& kernels, BenchThreads& threads, const AttentionBenchShape& shape,
                               uint64_t cold_bytes)
    : kernels_(kernels), threads_(threads), shape_(shape) {
  check_shape(shape);
  const uint64_t page_bytes = unsigned_size(2 * page_elements()) * sizeof(uint16_t);
  const int64_t pages_of_sequence = int64_t{shape.kv_heads} * pages();
  sequences_ = std::max<int64_t>(1, static_cast<int64_t>(cold_bytes / (unsigned_size(pages_of_sequence) * page_bytes)));
  kv_ = HugeRegion(unsigned_size(sequences_ * pages_of_sequence) * page_bytes, false, threads.nodes());
  TestRandom random(kSeed);
  std::vector<uint16_t> page(unsigned_size(2 * page_elements()));
  for (uint16_t& half : page) {  // fp16 of either sign, 1/8 to 1
    half = static_cast<uint16_t>((random.next() & 0x83FFU) | (unsigned_size(12 + random.below(3)) << 10));
  }
  const int64_t total = sequences_ * pages_of_sequence;
  threads_.time(total, even_piece(total, threads_.size()), [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(kv_.data() + unsigned_size(i) * page_bytes, page.data(), page_bytes);
  });
  const int64_t floats = int64_t{queries()} * shape.head_dim;
  queries_.reserve(floats);
  const std::vector<float> values = random_floats(random, ValueKind::plain, floats);
  std::copy(values.begin(), values.end(), queries_.data());
  result_.reserve(shape.kv_heads * floats);
  scratch_.resize(static_cast<size_t>(threads.size()));
  for (Scratch& scratch : scratch_) {
    scratch.begin.resize(unsigned_size(queries()));
    scratch.end.resize(unsigned_size(queries()));
    scratch.state.resize(unsigned_size(int64_t{queries()} * (2 + shape.head_dim)));
    scratch.block.resize(scratch.state.size());
    scratch.scores.reserve(int64_t{queries()} * kAttentionBlockTokens);
  }
}

uint64_t AttentionBench::kv_bytes() const {
  return unsigned_size(int64_t{2} * shape_.kv_heads * shape_.context * shape_.head_dim) * sizeof(uint16_t);
}

int64_t AttentionBench::query_keys() const {
  int64_t pairs = 0;
  for (int32_t i = 0; i < queries(); ++i) pairs += visible_keys(i);
  return pairs * shape_.kv_heads;
}

uint64_t AttentionBench::multiply_adds() const { return unsigned_size(2 * query_keys() * shape_.head_dim); }

void AttentionBench::attend(const KernelSet& kernels, Scratch& scratch, int64_t sequence, int32_t head,
                            float* result) const {
  const int64_t count = queries();
  const int64_t head_dim = shape_.head_dim;
  const auto* pages_of_head = reinterpret_cast<const uint16_t*>(kv_.data()) +
                              (sequence * shape_.kv_heads + head) * pages() * 2 * page_elements();
  const int32_t blocks = (shape_.context + kAttentionBlockTokens - 1) / kAttentionBlockTokens;
  for (int32_t block = 0; block < blocks; ++block) {
    const uint16_t* keys[kPagesPerBlock] = {};
    const uint16_t* values[kPagesPerBlock] = {};
    for (int32_t i = 0; i < std::min(kPagesPerBlock, pages() - block * kPagesPerBlock); ++i) {
      keys[i] = pages_of_head + (int64_t{block} * kPagesPerBlock + i) * 2 * page_elements();
      values[i] = keys[i] + page_elements();
    }
    for (int32_t i = 0; i < queries(); ++i) {
      const int32_t seen = visible_keys(i) - block * kAttentionBlockTokens;
      scratch.end[static_cast<size_t>(i)] = std::clamp(seen, 0, kAttentionBlockTokens);
    }
    std::vector<float>& out = block == 0 ? scratch.state : scratch.block;
    AttentionBlock job{};
    job.queries = queries_.data();
    job.query_stride = head_dim;
    job.query_count = queries();
    job.head_dim = shape_.head_dim;
    job.score_scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    job.key_begin = scratch.begin.data();
    job.key_end = scratch.end.data();
    job.key_pages = keys;
    job.value_pages = values;
    job.max = out.data();
    job.sum = out.data() + count;
    job.output = out.data() + 2 * count;
    job.scratch = scratch.scores.data();
    kernels.attention_block(job);
    for (int64_t i = 0; block > 0 && i < count; ++i) {
      float* state = scratch.state.data();
      kernels.attention_fold(state + i, state + count + i, state + 2 * count + i * head_dim, job.max[i], job.sum[i],
                             job.output + i * head_dim, shape_.head_dim);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* state = scratch.state.data();
    kernels.attention_finish(state + 2 * count + i * head_dim, state[count + i], shape_.head_dim,
                             result + i * head_dim);
  }
}

std::string AttentionBench::check() {
  std::vector<float> got(unsigned_size(int64_t{queries()} * shape_.head_dim), kUntouched);
  std::vector<float> want(got.size(), kUntouched);
  const ScopedFpEnvironment environment;
  attend(kernels_, scratch_[0], 0, 0, got.data());
  attend(reference_kernel_set(), scratch_[0], 0, 0, want.data());
  return difference(
      describe("attention", {{"context", shape_.context}, {"tokens", shape_.tokens}, {"head_dim", shape_.head_dim}}),
      got, want);
}

std::vector<double> AttentionBench::run(const Repeats& repeats) {
  return repeat(repeats, [&] {
    const int64_t sequence = next_sequence_;
    next_sequence_ = (next_sequence_ + 1) % sequences_;
    return threads_.time(shape_.kv_heads, 1, [&](int thread, int64_t head, int64_t) {
      attend(kernels_, scratch_[static_cast<size_t>(thread)], sequence, static_cast<int32_t>(head),
             result_.data() + head * queries() * shape_.head_dim);
    });
  });
}

}  // namespace tokenmill
