#include "kernels/reference/weight_group.h"

#include <cstring>

#include "kernels/reference/scalar_math.h"

namespace tokenmill::reference {
namespace {

constexpr int32_t kIq4NlValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

float load_half(const uint8_t* bytes) {
  uint16_t half = 0;
  std::memcpy(&half, bytes, sizeof half);
  return half_to_float(half);
}

int32_t signed_byte(uint8_t byte) { return byte < 128 ? byte : byte - 256; }

void set_scale(WeightGroup& group, float scale) {
  group.scale[0] = scale;
  group.scale[1] = scale;
}

// Byte i holds element i in its low nibble and element i + 16 in its high nibble.
void load_nibbles(const uint8_t* bytes, WeightGroup& group) {
  for (int i = 0; i < kHalfGroupSize; ++i) {
    group.q[i] = bytes[i] & 0x0F;
    group.q[i + kHalfGroupSize] = bytes[i] >> 4;
  }
}

// Bit i of the 32-bit word is bit 4 of element i.
void load_fifth_bits(const uint8_t* bytes, WeightGroup& group) {
  uint32_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  for (int i = 0; i < kGroupSize; ++i) {
    group.q[i] |= static_cast<int32_t>((bits >> i) & 1U) << 4;
  }
}

void subtract(WeightGroup& group, int32_t zero_point) {
  for (int32_t& q : group.q) {
    q -= zero_point;
  }
}

// Q4_K and Q5_K: d, dmin, then eight 6-bit scales and eight 6-bit minima in 12 bytes.
void load_k_scales(const uint8_t* block, int j, WeightGroup& group) {
  const uint8_t* packed = block + 4;
  int scale = 0;
  int minimum = 0;
  if (j < 4) {
    scale = packed[j] & 63;
    minimum = packed[j + 4] & 63;
  } else {
    scale = (packed[j + 4] & 0x0F) | ((packed[j - 4] >> 6) << 4);
    minimum = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
  }
  set_scale(group, load_half(block) * static_cast<float>(scale));
  group.offset = -(load_half(block + 2) * static_cast<float>(minimum));
}

// Q4_K and Q5_K: 32 bytes hold two groups, the even one in the low nibbles.
void load_k_nibbles(const uint8_t* bytes, int j, WeightGroup& group) {
  for (int i = 0; i < kGroupSize; ++i) {
    group.q[i] = (bytes[(j / 2) * kGroupSize + i] >> (4 * (j % 2))) & 0x0F;
  }
}

// Q6_K: 128 bytes of low nibbles, 64 of upper bit pairs, 16 signed scales, d.
void load_q6_k(const uint8_t* block, int j, WeightGroup& group) {
  const int half = j / 4;
  const int quarter = j % 4;
  const uint8_t* low = block + half * 64 + (quarter % 2) * 32;
  const uint8_t* high = block + 128 + half * 32;
  for (int i = 0; i < kGroupSize; ++i) {
    const int nibble = (low[i] >> (4 * (quarter / 2))) & 0x0F;
    const int pair = (high[i] >> (2 * quarter)) & 3;
    group.q[i] = (nibble | (pair << 4)) - 32;
  }
  const float d = load_half(block + 208);
  for (int i = 0; i < 2; ++i) {
    group.scale[i] = d * static_cast<float>(signed_byte(block[192 + 2 * j + i]));
  }
}

}  // namespace

WeightGroup decode_group(WeightFormat format, const uint8_t* row, int64_t group_index) {
  const WeightFormatInfo& info = format_info(format);
  const int64_t groups_per_block = info.block_elements / kGroupSize;
  const uint8_t* block = row + group_index / groups_per_block * info.block_bytes;
  const int j = static_cast<int>(group_index % groups_per_block);
  WeightGroup group{};
  switch (format) {
    case WeightFormat::q4_0:
      load_nibbles(block + 2, group);
      subtract(group, 8);
      set_scale(group, load_half(block));
      break;
    case WeightFormat::q4_1:
      load_nibbles(block + 4, group);
      set_scale(group, load_half(block));
      group.offset = load_half(block + 2);
      break;
    case WeightFormat::q5_0:
      load_nibbles(block + 6, group);
      load_fifth_bits(block + 2, group);
      subtract(group, 16);
      set_scale(group, load_half(block));
      break;
    case WeightFormat::q5_1:
      load_nibbles(block + 8, group);
      load_fifth_bits(block + 4, group);
      set_scale(group, load_half(block));
      group.offset = load_half(block + 2);
      break;
    case WeightFormat::q8_0:
      for (int i = 0; i < kGroupSize; ++i) {
        group.q[i] = signed_byte(block[2 + i]);
      }
      set_scale(group, load_half(block));
      break;
    case WeightFormat::q4_k:
      load_k_nibbles(block + 16, j, group);
      load_k_scales(block, j, group);
      break;
    case WeightFormat::q5_k:
      load_k_nibbles(block + 48, j, group);
      for (int i = 0; i < kGroupSize; ++i) {
        group.q[i] |= ((block[16 + i] >> j) & 1) << 4;
      }
      load_k_scales(block, j, group);
      break;
    case WeightFormat::q6_k:
      load_q6_k(block, j, group);
      break;
    case WeightFormat::iq4_nl:
      load_nibbles(block + 2, group);
      for (int32_t& q : group.q) {
        q = kIq4NlValues[q];
      }
      set_scale(group, load_half(block));
      break;
    default:  // float formats have no groups
      break;
  }
  return group;
}

}  // namespace tokenmill::reference
