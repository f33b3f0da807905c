// One kernel on its own, for tests and kernel benchmarks: packs, splits among threads and multiplies as a step does.
#pragma once
#include <cstdint>
#include <span>

#include "contract/kernel_set.h"

namespace tokenmill {

struct FloatRows {
  const float* data;  // [rows][k]
  int64_t rows;
  int64_t k;
};

// Throws std::invalid_argument unless `bytes` is what a matrix of [rows][k] takes.
void check_matrix_bytes(WeightFormat format, uint64_t bytes, int64_t rows, int64_t k);

// y [x.rows][rows] = x W^T for W given as file blocks, checked by check_matrix_bytes. Throws std::invalid_argument for
// a bad number of threads, std::bad_alloc.
void multiply_once(const KernelSet& kernels, WeightFormat format, std::span<const uint8_t> file, int64_t rows,
                   const FloatRows& x, int threads, float* y);

}  // namespace tokenmill
