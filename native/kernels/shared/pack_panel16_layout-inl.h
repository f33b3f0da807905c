// The packed layout that the x86 sets share: panels of 16 output rows, cut along K into units of 256 elements.
//
// Lane = output row, so that a dot instruction over four bytes works on 16 rows at once and no horizontal sum is ever
// needed. A unit holds n groups of 32 (8, fewer only in the last unit of a row whose K is no multiple of 256):
//
//   weights     n x 256 B  4-bit formats: vector c = 0..3, byte [row][i]: element 4c+i in the low nibble, 16+4c+i in
//                          the high one
//               n x 512 B  Q8_0: vector c = 0..7, byte [row][i]: element 4c+i plus 128
//   high bits   n x  64 B  5-bit formats: byte [row][i], bit c: fifth bit of element 4c+i
//               n x 128 B  Q6_K: two vectors (elements 0..15 and 16..31), bits 2c..2c+1: bits 4..5 of element 4c+i
//   scales      n x  32 B  fp16 d[16]; with a minimum n x 32 B fp16 m[16] follow
//               Q4_K, Q5_K: n x 16 B (scale & 15) | (minimum & 15) << 4; uint32[16] with bits 4g..4g+1 = scale >> 4 and
//               4g+2..4g+3 = minimum >> 4 of group g; fp16 d[16]; fp16 dmin[16]
//               Q6_K: 16 x int8[16], one per half group; fp16 d[16]
//
// Every byte of the file is kept and none is added: sub-scales stay compressed and are expanded when they are used.
// Float weights are [k][16 rows]; BF16 is [k / 2][16 rows][2], so that one mask or shift makes a vector of floats.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "contract/weight_formats.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

constexpr int kRowsPerPanel = 16;
constexpr int kGroupsPerUnit = kSuperBlockSize / kGroupSize;
constexpr int kWeightVectorBytes = 4 * kRowsPerPanel;  // four elements of each row

enum class ScaleKind : uint8_t { none, plain, with_min, superblock_min, superblock_half };

struct PanelFormat {
  int weight_bytes;  // per group and panel
  int high_bits;     // 0, 1 or 2 per element
  ScaleKind scales;
  int offset;  // the stored unsigned integer minus this is the weight's integer
};

// Only integer formats have an entry here.
constexpr PanelFormat panel_format(WeightFormat format) {
  switch (format) {
    case WeightFormat::q4_0:
      return {256, 0, ScaleKind::plain, 8};
    case WeightFormat::q4_1:
      return {256, 0, ScaleKind::with_min, 0};
    case WeightFormat::q5_0:
      return {256, 1, ScaleKind::plain, 16};
    case WeightFormat::q5_1:
      return {256, 1, ScaleKind::with_min, 0};
    case WeightFormat::q8_0:
      return {512, 0, ScaleKind::plain, 128};
    case WeightFormat::q4_k:
      return {256, 0, ScaleKind::superblock_min, 0};
    case WeightFormat::q5_k:
      return {256, 1, ScaleKind::superblock_min, 0};
    case WeightFormat::q6_k:
      return {256, 2, ScaleKind::superblock_half, 32};
    case WeightFormat::iq4_nl:
      return {256, 0, ScaleKind::plain, 128};
    default:
      return {0, 0, ScaleKind::none, 0};
  }
}

constexpr int scale_bytes(ScaleKind kind, int groups) {
  switch (kind) {
    case ScaleKind::plain:
      return groups * 32;
    case ScaleKind::with_min:
      return groups * 64;
    case ScaleKind::superblock_min:
      return groups * 16 + 64 + 64;
    case ScaleKind::superblock_half:
      return groups * 32 + 32;
    default:
      return 0;
  }
}

// Where the parts of a unit of `groups` groups begin.
struct UnitLayout {
  int high_bits;
  int scales;
  int bytes;
};

constexpr UnitLayout unit_layout(WeightFormat format, int groups) {
  const PanelFormat f = panel_format(format);
  const int high = groups * f.weight_bytes;
  const int scales = high + groups * f.high_bits * kWeightVectorBytes;
  return {high, scales, scales + scale_bytes(f.scales, groups)};
}

constexpr int groups_in_unit(int64_t groups, int64_t unit) {
  const int64_t left = groups - unit * kGroupsPerUnit;
  return left < kGroupsPerUnit ? static_cast<int>(left) : kGroupsPerUnit;
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
