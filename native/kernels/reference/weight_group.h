// One group of 32 weights of an integer format, decoded from the file's blocks: what the stored bytes mean.
#pragma once
#include <cstdint>

#include "contract/weight_formats.h"

namespace tokenmill::reference {

struct WeightGroup {
  int32_t q[kGroupSize];  // the true (signed) integers
  float scale[2];         // of each half group of 16; equal except for Q6_K
  float offset;           // weight i = scale * q[i] + offset; 0 in formats without a minimum
};

// Decodes group `group` (elements 32 * group ...) of a row of file blocks. `format` must be an integer format.
WeightGroup decode_group(WeightFormat format, const uint8_t* row, int64_t group);

}  // namespace tokenmill::reference
