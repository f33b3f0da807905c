// File blocks of one row, taken apart into the words that a panel stores, and put together again. A unit is 256
// elements of the row (the last one may be shorter); see pack_panel16_layout-inl.h.
#pragma once
#include "kernels/shared/pack_panel16_layout-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

constexpr uint32_t kLowNibbles = 0x0F0F0F0FU;
constexpr uint32_t kHighNibbles = 0xF0F0F0F0U;
constexpr uint32_t kLowBits = 0x01010101U;
constexpr uint32_t kLowPairs = 0x03030303U;
constexpr uint32_t kSignBits = 0x80808080U;

struct RowGroup {
  uint32_t weights[8];  // 4-bit formats use four
  uint32_t high[2];     // 5-bit formats use one
};

struct RowUnit {
  RowGroup group[kGroupsPerUnit];
  uint16_t d[kGroupsPerUnit];             // superblock formats use one
  uint16_t m[kGroupsPerUnit];             // the minimum (dmin in superblock formats)
  uint8_t sub_scale[2 * kGroupsPerUnit];  // Q6_K: per half group; Q4_K, Q5_K: scale | minimum << 4, low four bits each
  uint32_t sub_high;                      // Q4_K, Q5_K: their upper two bits
};

inline uint32_t load_word(const uint8_t* p) {
  uint32_t word = 0;
  std::memcpy(&word, p, sizeof word);
  return word;
}

inline void store_word(uint8_t* p, uint32_t word) { std::memcpy(p, &word, sizeof word); }

inline uint32_t swap_bits(uint32_t x, uint32_t mask, int shift) {
  const uint32_t t = (x ^ (x >> shift)) & mask;
  return x ^ t ^ (t << shift);
}

// Bit 4c+i moves to bit 8i+c: the index bits (c2 c1 c0 i1 i0) become (i1 i0 c2 c1 c0).
inline uint32_t transpose_fifth_bits(uint32_t bits) {
  bits = swap_bits(bits, 0x22222222U, 1);
  bits = swap_bits(bits, 0x0A0A0A0AU, 3);
  bits = swap_bits(bits, 0x00CC00CCU, 6);
  return swap_bits(bits, 0x0000F0F0U, 12);
}

inline uint32_t restore_fifth_bits(uint32_t bits) {
  bits = swap_bits(bits, 0x0000F0F0U, 12);
  bits = swap_bits(bits, 0x00CC00CCU, 6);
  bits = swap_bits(bits, 0x0A0A0A0AU, 3);
  return swap_bits(bits, 0x22222222U, 1);
}

// --- blocks of 32: d, m where the format has one, the fifth bits, the weights ---

struct SmallBlock {
  int m;  // offsets in the block; -1: absent
  int fifth_bits;
  int weights;
  int weight_words;
  uint32_t flip;
};

constexpr SmallBlock small_block(WeightFormat format) {
  switch (format) {
    case WeightFormat::q4_1:
      return {2, -1, 4, 4, 0};
    case WeightFormat::q5_0:
      return {-1, 2, 6, 4, 0};
    case WeightFormat::q5_1:
      return {2, 4, 8, 4, 0};
    case WeightFormat::q8_0:
      return {-1, -1, 2, 8, kSignBits};
    default:  // Q4_0, IQ4_NL
      return {-1, -1, 2, 4, 0};
  }
}

template <WeightFormat kFormat>
inline void read_small_blocks(const uint8_t* block, int groups, RowUnit& unit) {
  constexpr SmallBlock kBlock = small_block(kFormat);
  for (int g = 0; g < groups; ++g, block += kWeightFormats[static_cast<int>(kFormat)].block_bytes) {
    std::memcpy(&unit.d[g], block, 2);
    if constexpr (kBlock.m >= 0) {
      std::memcpy(&unit.m[g], block + kBlock.m, 2);
    }
    if constexpr (kBlock.fifth_bits >= 0) {
      unit.group[g].high[0] = transpose_fifth_bits(load_word(block + kBlock.fifth_bits));
    }
    for (int c = 0; c < kBlock.weight_words; ++c) {
      unit.group[g].weights[c] = load_word(block + kBlock.weights + 4 * c) ^ kBlock.flip;
    }
  }
}

template <WeightFormat kFormat>
inline void write_small_blocks(const RowUnit& unit, int groups, uint8_t* block) {
  constexpr SmallBlock kBlock = small_block(kFormat);
  for (int g = 0; g < groups; ++g, block += kWeightFormats[static_cast<int>(kFormat)].block_bytes) {
    std::memcpy(block, &unit.d[g], 2);
    if constexpr (kBlock.m >= 0) {
      std::memcpy(block + kBlock.m, &unit.m[g], 2);
    }
    if constexpr (kBlock.fifth_bits >= 0) {
      store_word(block + kBlock.fifth_bits, restore_fifth_bits(unit.group[g].high[0]));
    }
    for (int c = 0; c < kBlock.weight_words; ++c) {
      store_word(block + kBlock.weights + 4 * c, unit.group[g].weights[c] ^ kBlock.flip);
    }
  }
}

// --- Q4_K, Q5_K: d, dmin, 12 bytes of six-bit scales and minima, (Q5_K: 32 bytes of fifth bits,) 128 bytes of nibbles:
// bytes 32p.. hold group 2p in the low and group 2p+1 in the high nibbles ---

constexpr int kKScales = 4;
constexpr int kKFifthBits = 16;

inline void read_k_scales(const uint8_t* packed, RowUnit& unit) {
  unit.sub_high = 0;
  for (int g = 0; g < kGroupsPerUnit; ++g) {
    int scale = packed[g] & 63;
    int minimum = packed[(g + 4) % 12] & 63;
    if (g >= 4) {
      scale = (packed[g + 4] & 15) | (packed[g - 4] >> 6) << 4;
      minimum = (packed[g + 4] >> 4) | (packed[g] >> 6) << 4;
    }
    unit.sub_scale[g] = static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
    unit.sub_high |= static_cast<uint32_t>(scale >> 4 | (minimum >> 4) << 2) << (4 * g);
  }
}

inline void write_k_scales(const RowUnit& unit, uint8_t* packed) {
  std::memset(packed, 0, 12);
  for (int g = 0; g < kGroupsPerUnit; ++g) {
    const auto high = static_cast<int>(unit.sub_high >> (4 * g));
    const int scale = (unit.sub_scale[g] & 15) | (high & 3) << 4;
    const int minimum = (unit.sub_scale[g] >> 4) | (high >> 2 & 3) << 4;
    if (g < 4) {
      packed[g] |= static_cast<uint8_t>(scale);
      packed[g + 4] |= static_cast<uint8_t>(minimum);
    } else {
      packed[g + 4] = static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
      packed[g - 4] |= static_cast<uint8_t>((scale >> 4) << 6);
      packed[g] |= static_cast<uint8_t>((minimum >> 4) << 6);
    }
  }
}

template <WeightFormat kFormat>
inline void read_k_block(const uint8_t* block, RowUnit& unit) {
  constexpr bool kFive = kFormat == WeightFormat::q5_k;
  const uint8_t* nibbles = block + (kFive ? 48 : 16);
  std::memcpy(unit.d, block, 2);
  std::memcpy(unit.m, block + 2, 2);
  read_k_scales(block + kKScales, unit);
  for (int pair = 0; pair < kGroupsPerUnit / 2; ++pair, nibbles += 32) {
    for (int c = 0; c < 4; ++c) {
      const uint32_t first = load_word(nibbles + 4 * c);
      const uint32_t second = load_word(nibbles + 16 + 4 * c);
      unit.group[2 * pair].weights[c] = (first & kLowNibbles) | (second & kLowNibbles) << 4;
      unit.group[2 * pair + 1].weights[c] = (first >> 4 & kLowNibbles) | (second & kHighNibbles);
    }
  }
  if constexpr (kFive) {
    for (int g = 0; g < kGroupsPerUnit; ++g) {
      uint32_t bits = 0;
      for (int c = 0; c < 8; ++c) {
        bits |= (load_word(block + kKFifthBits + 4 * c) >> g & kLowBits) << c;
      }
      unit.group[g].high[0] = bits;
    }
  }
}

template <WeightFormat kFormat>
inline void write_k_block(const RowUnit& unit, uint8_t* block) {
  constexpr bool kFive = kFormat == WeightFormat::q5_k;
  uint8_t* nibbles = block + (kFive ? 48 : 16);
  std::memcpy(block, unit.d, 2);
  std::memcpy(block + 2, unit.m, 2);
  write_k_scales(unit, block + kKScales);
  for (int pair = 0; pair < kGroupsPerUnit / 2; ++pair, nibbles += 32) {
    for (int c = 0; c < 4; ++c) {
      const uint32_t even = unit.group[2 * pair].weights[c];
      const uint32_t odd = unit.group[2 * pair + 1].weights[c];
      store_word(nibbles + 4 * c, (even & kLowNibbles) | (odd & kLowNibbles) << 4);
      store_word(nibbles + 16 + 4 * c, (even >> 4 & kLowNibbles) | (odd & kHighNibbles));
    }
  }
  if constexpr (kFive) {
    for (int c = 0; c < 8; ++c) {
      uint32_t bits = 0;
      for (int g = 0; g < kGroupsPerUnit; ++g) {
        bits |= (unit.group[g].high[0] >> c & kLowBits) << g;
      }
      store_word(block + kKFifthBits + 4 * c, bits);
    }
  }
}

// --- Q6_K: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, d. In each half of 128 elements
// group q = 0..3 takes nibble q / 2 of bytes 32 (q % 2).. and bit pair q of the half's 32 bytes of pairs ---

constexpr int kQ6Pairs = 128;
constexpr int kQ6Scales = 192;
constexpr int kQ6D = 208;

inline void read_q6_block(const uint8_t* block, RowUnit& unit) {
  std::memcpy(unit.d, block + kQ6D, 2);
  std::memcpy(unit.sub_scale, block + kQ6Scales, sizeof unit.sub_scale);
  for (int g = 0; g < kGroupsPerUnit; ++g) {
    const int quarter = g % 4;
    const int shift = 4 * (quarter / 2);
    const uint8_t* low = block + 64 * (g / 4) + 32 * (quarter % 2);
    const uint8_t* pairs = block + kQ6Pairs + 32 * (g / 4);
    RowGroup& group = unit.group[g];
    group.high[0] = 0;
    group.high[1] = 0;
    for (int c = 0; c < 4; ++c) {
      group.weights[c] =
          (load_word(low + 4 * c) >> shift & kLowNibbles) | (load_word(low + 16 + 4 * c) >> shift & kLowNibbles) << 4;
      group.high[0] |= (load_word(pairs + 4 * c) >> (2 * quarter) & kLowPairs) << (2 * c);
      group.high[1] |= (load_word(pairs + 16 + 4 * c) >> (2 * quarter) & kLowPairs) << (2 * c);
    }
  }
}

inline void write_q6_block(const RowUnit& unit, uint8_t* block) {
  std::memcpy(block + kQ6D, unit.d, 2);
  std::memcpy(block + kQ6Scales, unit.sub_scale, sizeof unit.sub_scale);
  std::memset(block, 0, kQ6Scales);
  for (int g = 0; g < kGroupsPerUnit; ++g) {
    const int quarter = g % 4;
    const int shift = 4 * (quarter / 2);
    uint8_t* low = block + 64 * (g / 4) + 32 * (quarter % 2);
    uint8_t* pairs = block + kQ6Pairs + 32 * (g / 4);
    const RowGroup& group = unit.group[g];
    for (int c = 0; c < 4; ++c) {
      for (int half = 0; half < 2; ++half) {
        uint8_t* nibble = low + 16 * half + 4 * c;
        uint8_t* pair = pairs + 16 * half + 4 * c;
        store_word(nibble, load_word(nibble) | (group.weights[c] >> (4 * half) & kLowNibbles) << shift);
        store_word(pair, load_word(pair) | (group.high[half] >> (2 * c) & kLowPairs) << (2 * quarter));
      }
    }
  }
}

template <WeightFormat kFormat>
inline void read_unit(const uint8_t* blocks, int groups, RowUnit& unit) {
  if constexpr (kFormat == WeightFormat::q4_k || kFormat == WeightFormat::q5_k) {
    read_k_block<kFormat>(blocks, unit);
  } else if constexpr (kFormat == WeightFormat::q6_k) {
    read_q6_block(blocks, unit);
  } else {
    read_small_blocks<kFormat>(blocks, groups, unit);
  }
}

template <WeightFormat kFormat>
inline void write_unit(const RowUnit& unit, int groups, uint8_t* blocks) {
  if constexpr (kFormat == WeightFormat::q4_k || kFormat == WeightFormat::q5_k) {
    write_k_block<kFormat>(unit, blocks);
  } else if constexpr (kFormat == WeightFormat::q6_k) {
    write_q6_block(unit, blocks);
  } else {
    write_small_blocks<kFormat>(unit, groups, blocks);
  }
}

}  // namespace
}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
