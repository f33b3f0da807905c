// One matrix product of a kernel set, timed as a step runs it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/bench_threads.h"
#include "contract/kernel_set.h"
#include "decoder/workspace.h"
#include "weights/huge_memory.h"

namespace tokenmill {

struct MatmulBenchShape {
  WeightFormat format;
  int64_t rows;
  int64_t k;
  int64_t most_tokens;
};

// A packed matrix with random contents, as many copies of it as it takes to fill `cold_bytes`, and random activations.
class MatmulBench {
 public:
  // Throws std::invalid_argument for sizes that the format does not have, std::bad_alloc.
  MatmulBench(const KernelSet& kernels, BenchThreads& threads, const MatmulBenchShape& shape, uint64_t cold_bytes);

  uint64_t matrix_bytes() const { return matrix_bytes_; }
  int64_t copies() const { return copies_; }

  // Empty when the product of `tokens` rows of activations has the reference's bits, else where it differs.
  std::string check(int64_t tokens);
  // Seconds of each product. Runs take the copies in turn, so that weights come from memory and not from a cache.
  std::vector<double> run(int64_t tokens, const Repeats& repeats);

 private:
  double multiply(int64_t tokens);
  Activations activations(int64_t tokens) const;

  const KernelSet& kernels_;
  BenchThreads& threads_;
  MatmulBenchShape shape_;
  int64_t panels_;
  uint64_t panel_bytes_;
  uint64_t matrix_bytes_;
  int64_t copies_;
  int64_t next_copy_ = 0;
  int64_t bank_rows_;               // rows of the matrix repeat after so many
  std::vector<uint8_t> bank_file_;  // those rows as a file has them
  HugeRegion packed_;
  std::vector<float> x_;
  ScratchBuffer<int8_t> q_;
  ScratchBuffer<float> scale_;
  ScratchBuffer<int16_t> half_sums_;
  ScratchBuffer<int32_t> packed_input_;
  int64_t packed_tokens_ = 0;  // of what packed_input_ holds
  ScratchBuffer<float> y_;
};

}  // namespace tokenmill
