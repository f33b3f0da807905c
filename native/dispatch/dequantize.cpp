#include "dispatch/dequantize.h"

#include <cstring>

#include "kernels/reference/scalar_math.h"
#include "kernels/reference/weight_group.h"

namespace tokenmill {
namespace {

uint16_t load_u16(const uint8_t* bytes) {
  uint16_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

bool half_is_finite(const uint8_t* bytes) { return (load_u16(bytes) & 0x7C00U) != 0x7C00U; }

bool block_is_finite(WeightFormat format, const uint8_t* block) {
  switch (format) {
    case WeightFormat::f32: {
      uint32_t bits = 0;
      std::memcpy(&bits, block, sizeof bits);
      return (bits & 0x7F800000U) != 0x7F800000U;
    }
    case WeightFormat::bf16:
      return (load_u16(block) & 0x7F80U) != 0x7F80U;
    case WeightFormat::q6_k:
      return half_is_finite(block + 208);
    default:  // F16 itself, or a block that begins with its scale and, where it has one, its minimum
      return half_is_finite(block) && (!format_info(format).has_min || half_is_finite(block + 2));
  }
}

}  // namespace

void dequantize_row(WeightFormat format, const uint8_t* file_row, int64_t k, float* out) {
  if (format == WeightFormat::f32) {
    std::memcpy(out, file_row, static_cast<uint64_t>(k) * sizeof(float));
    return;
  }
  if (!format_info(format).integer) {
    for (int64_t i = 0; i < k; ++i) {
      const uint16_t bits = load_u16(file_row + 2 * i);
      out[i] = format == WeightFormat::f16 ? reference::half_to_float(bits) : reference::bfloat_to_float(bits);
    }
    return;
  }
  for (int64_t group = 0; group < k / kGroupSize; ++group) {
    const reference::WeightGroup weights = reference::decode_group(format, file_row, group);
    for (int i = 0; i < kGroupSize; ++i) {
      const float product = weights.scale[i / kHalfGroupSize] * static_cast<float>(weights.q[i]);
      // Without a minimum nothing is added: adding zero would turn -0 into +0.
      out[group * kGroupSize + i] = format_info(format).has_min ? product + weights.offset : product;
    }
  }
}

int64_t find_nonfinite_block(WeightFormat format, const uint8_t* file_row, int64_t k) {
  const WeightFormatInfo& info = format_info(format);
  const int64_t blocks = k / info.block_elements;
  for (int64_t block = 0; block < blocks; ++block) {
    if (!block_is_finite(format, file_row + block * info.block_bytes)) {
      return block;
    }
  }
  return -1;
}

}  // namespace tokenmill
