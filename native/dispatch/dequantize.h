// Rows of a model file as floats: embedding look-up, tests, and checks of what a file holds.
#pragma once
#include <cstdint>

#include "contract/weight_formats.h"

namespace tokenmill {

// Writes the `k` weights of one row of file blocks; k is a multiple of the format's block. The bits equal those of the
// Python package gguf.
void dequantize_row(WeightFormat format, const uint8_t* file_row, int64_t k, float* out);

// Index of the first block in a row whose scale or minimum (or, in float formats, whose value) is NaN or infinite;
// -1 when there is none. Such a block would make every activation after it non-finite.
int64_t find_nonfinite_block(WeightFormat format, const uint8_t* file_row, int64_t k);

}  // namespace tokenmill
