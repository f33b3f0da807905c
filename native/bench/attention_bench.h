// Attention of a kernel set over KV pages in memory, timed as a step runs it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/bench_threads.h"
#include "contract/kernel_set.h"
#include "decoder/workspace.h"
#include "weights/huge_memory.h"

namespace tokenmill {

struct AttentionBenchShape {
  int32_t context;  // keys of a sequence
  int32_t tokens;   // last tokens of the sequence that ask: 1 is decode, more a tile of prefill
  int32_t kv_heads;
  int32_t group;     // query heads per KV head
  int32_t head_dim;  // multiple of 8
};

class AttentionBench {
 public:
  // As many sequences as fill `cold_bytes` with keys and values. Throws std::invalid_argument for sizes out of range,
  // std::bad_alloc.
  AttentionBench(const KernelSet& kernels, BenchThreads& threads, const AttentionBenchShape& shape,
                 uint64_t cold_bytes);

  // Of one run, which is one sequence's attention in all heads.
  uint64_t kv_bytes() const;
  uint64_t multiply_adds() const;  // those of scores and outputs
  int64_t query_keys() const;      // pairs of a query and a key that it sees

  // Empty when one KV head's result has the reference's bits, else where it differs.
  std::string check();
  // Seconds of each run; runs take the sequences in turn.
  std::vector<double> run(const Repeats& repeats);

 private:
  // What one thread needs for a tile of queries; state and block hold maxima, sums and outputs one after another.
  struct Scratch {
    std::vector<int32_t> begin, end;
    std::vector<float> state, block;
    ScratchBuffer<float> scores;
  };

  int32_t queries() const { return shape_.tokens * shape_.group; }
  int32_t pages() const { return (shape_.context + kPageTokens - 1) / kPageTokens; }
  int64_t page_elements() const { return int64_t{shape_.head_dim} * kPageTokens; }
  int32_t visible_keys(int32_t query) const { return shape_.context - shape_.tokens + query / shape_.group + 1; }
  void attend(const KernelSet& kernels, Scratch& scratch, int64_t sequence, int32_t head, float* result) const;

  const KernelSet& kernels_;
  BenchThreads& threads_;
  AttentionBenchShape shape_;
  int64_t sequences_;
  int64_t next_sequence_ = 0;
  std::vector<Scratch> scratch_;  // by thread
  HugeRegion kv_;                 // [sequence][head][page][keys, values] of fp16
  ScratchBuffer<float> queries_;
  ScratchBuffer<float> result_;
};

}  // namespace tokenmill
