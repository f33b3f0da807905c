// The weight formats of a model file, as data. Block layouts are those of the GGUF specification (ggml).
#pragma once
#include <cstdint>

namespace tokenmill {

enum class WeightFormat : uint8_t {
  f32 = 0,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  count,
};

constexpr int kWeightFormatCount = static_cast<int>(WeightFormat::count);

// Every integer format is a sequence of groups of 32 (Q6_K: two half groups of 16) along K.
constexpr int kGroupSize = 32;
constexpr int kHalfGroupSize = 16;
constexpr int kSuperBlockSize = 256;

struct WeightFormatInfo {
  const char* name;         // the name that GGUF tools print, e.g. "Q4_0"
  uint32_t ggml_type;       // the number in a GGUF tensor record
  uint32_t block_elements;  // elements per block along K
  uint32_t block_bytes;     // bytes per block in the file
  bool integer;             // quantized activations (true) or float activations (false)
  bool has_min;             // w = scale * q + offset, with an offset of its own
};

constexpr WeightFormatInfo kWeightFormats[kWeightFormatCount] = {
    {"F32", 0, 1, 4, false, false},     {"F16", 1, 1, 2, false, false},      {"BF16", 30, 1, 2, false, false},
    {"Q4_0", 2, 32, 18, true, false},   {"Q4_1", 3, 32, 20, true, true},     {"Q5_0", 6, 32, 22, true, false},
    {"Q5_1", 7, 32, 24, true, true},    {"Q8_0", 8, 32, 34, true, false},    {"Q4_K", 12, 256, 144, true, true},
    {"Q5_K", 13, 256, 176, true, true}, {"Q6_K", 14, 256, 210, true, false}, {"IQ4_NL", 20, 32, 18, true, false},
};

constexpr const WeightFormatInfo& format_info(WeightFormat format) { return kWeightFormats[static_cast<int>(format)]; }

// Bytes of one row of `k` elements in the file; 0 when k is not a multiple of the block.
constexpr uint64_t row_bytes(WeightFormat format, uint64_t k) {
  const WeightFormatInfo& info = format_info(format);
  return k % info.block_elements == 0 ? k / info.block_elements * info.block_bytes : 0;
}

}  // namespace tokenmill
