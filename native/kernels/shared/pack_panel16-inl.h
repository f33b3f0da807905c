// panel_bytes, pack_panel and unpack_row for panels of 16 rows (layout: pack_panel16_layout-inl.h). Word-wise scalar
// code: it runs once per load.
#pragma once
#include "kernels/shared/pack_panel16_blocks-inl.h"
#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

constexpr bool is_float(WeightFormat format) {
  return format == WeightFormat::f32 || format == WeightFormat::f16 || format == WeightFormat::bf16;
}

// The bytes of lane `row` in a unit of `groups` groups, in the order of the layout: calls visit(panel, row_unit, size)
// for each, so that packing and unpacking cannot disagree.
template <WeightFormat kFormat, typename Unit, typename Visit>
inline void visit_lane(int groups, int row, Unit& unit, const Visit& visit) {
  constexpr PanelFormat kPanel = panel_format(kFormat);
  const UnitLayout layout = unit_layout(kFormat, groups);
  for (int g = 0; g < groups; ++g) {
    for (int c = 0; c < kPanel.weight_bytes / kWeightVectorBytes; ++c) {
      visit(g * kPanel.weight_bytes + c * kWeightVectorBytes + 4 * row, &unit.group[g].weights[c], 4);
    }
    for (int h = 0; h < kPanel.high_bits; ++h) {
      visit(layout.high_bits + (g * kPanel.high_bits + h) * kWeightVectorBytes + 4 * row, &unit.group[g].high[h], 4);
    }
  }
  int at = layout.scales;
  if constexpr (kPanel.scales == ScaleKind::superblock_min || kPanel.scales == ScaleKind::superblock_half) {
    constexpr int kSubScales = kPanel.scales == ScaleKind::superblock_min ? kGroupsPerUnit : 2 * kGroupsPerUnit;
    for (int i = 0; i < kSubScales; ++i) {
      visit(at + i * kRowsPerPanel + row, &unit.sub_scale[i], 1);
    }
    at += kSubScales * kRowsPerPanel;
  }
  if constexpr (kPanel.scales == ScaleKind::superblock_min) {
    visit(at + 4 * row, &unit.sub_high, 4);
    at += 4 * kRowsPerPanel;
  }
  const bool superblock = kPanel.scales != ScaleKind::plain && kPanel.scales != ScaleKind::with_min;
  const bool minimum = kPanel.scales == ScaleKind::with_min || kPanel.scales == ScaleKind::superblock_min;
  const int scales = superblock ? 1 : groups;
  for (int i = 0; i < scales; ++i) {
    visit(at + (i * kRowsPerPanel + row) * 2, &unit.d[i], 2);
    if (minimum) {
      visit(at + ((scales + i) * kRowsPerPanel + row) * 2, &unit.m[i], 2);
    }
  }
}

template <WeightFormat kFormat>
void pack_integer_panel(const uint8_t* file_rows, int64_t rows, int64_t k, uint8_t* panel) {
  constexpr WeightFormatInfo kInfo = kWeightFormats[static_cast<int>(kFormat)];
  const int64_t groups = k / kGroupSize;
  const int64_t file_row_bytes = k / kInfo.block_elements * kInfo.block_bytes;
  constexpr int kUnitFileBytes = static_cast<int>(kSuperBlockSize / kInfo.block_elements * kInfo.block_bytes);
  const RowUnit zero{};
  for (int64_t u = 0; u * kGroupsPerUnit < groups; ++u) {
    const int n = groups_in_unit(groups, u);
    uint8_t* out = panel + u * unit_layout(kFormat, kGroupsPerUnit).bytes;
    const auto store = [out](int at, const void* from, int size) { std::memcpy(out + at, from, size); };
    for (int row = 0; row < kRowsPerPanel; ++row) {
      if (row < rows) {
        RowUnit unit;
        read_unit<kFormat>(file_rows + row * file_row_bytes + u * kUnitFileBytes, n, unit);
        visit_lane<kFormat>(n, row, unit, store);
      } else {
        visit_lane<kFormat>(n, row, zero, store);
      }
    }
  }
}

template <WeightFormat kFormat>
void unpack_integer_row(const uint8_t* panel, int lane, int64_t k, uint8_t* file_row) {
  constexpr WeightFormatInfo kInfo = kWeightFormats[static_cast<int>(kFormat)];
  const int64_t groups = k / kGroupSize;
  constexpr int kUnitFileBytes = static_cast<int>(kSuperBlockSize / kInfo.block_elements * kInfo.block_bytes);
  for (int64_t u = 0; u * kGroupsPerUnit < groups; ++u) {
    const int n = groups_in_unit(groups, u);
    const uint8_t* in = panel + u * unit_layout(kFormat, kGroupsPerUnit).bytes;
    RowUnit unit;
    visit_lane<kFormat>(n, lane, unit, [in](int at, void* to, int size) { std::memcpy(to, in + at, size); });
    write_unit<kFormat>(unit, n, file_row + u * kUnitFileBytes);
  }
}

// Byte offset of element i of a lane in a panel of float weights.
constexpr int64_t float_offset(WeightFormat format, int64_t i, int lane) {
  if (format == WeightFormat::f32) {
    return (i * kRowsPerPanel + lane) * 4;
  }
  if (format == WeightFormat::f16) {
    return (i * kRowsPerPanel + lane) * 2;
  }
  return ((i / 2 * kRowsPerPanel + lane) * 2 + i % 2) * 2;
}

template <WeightFormat kFormat>
void pack_float_panel(const uint8_t* file_rows, int64_t rows, int64_t k, uint8_t* panel) {
  constexpr int kSize = kFormat == WeightFormat::f32 ? 4 : 2;
  if (rows < kRowsPerPanel || k % 2 != 0) {
    std::memset(panel, 0, panel_bytes(kFormat, k));
  }
  for (int64_t i = 0; i < k; ++i) {
    for (int row = 0; row < rows; ++row) {
      std::memcpy(panel + float_offset(kFormat, i, row), file_rows + (row * k + i) * kSize, kSize);
    }
  }
}

template <WeightFormat kFormat>
void unpack_float_row(const uint8_t* panel, int lane, int64_t k, uint8_t* file_row) {
  constexpr int kSize = kFormat == WeightFormat::f32 ? 4 : 2;
  for (int64_t i = 0; i < k; ++i) {
    std::memcpy(file_row + i * kSize, panel + float_offset(kFormat, i, lane), kSize);
  }
}

}  // namespace

uint64_t panel_bytes(WeightFormat format, int64_t k) {
  if (is_float(format)) {
    const int64_t stored = format == WeightFormat::bf16 ? k + k % 2 : k;  // BF16 stores pairs along K
    return static_cast<uint64_t>(stored * kRowsPerPanel) * (format == WeightFormat::f32 ? 4 : 2);
  }
  const int64_t groups = k / kGroupSize;
  const int64_t full = groups / kGroupsPerUnit;
  const auto rest = static_cast<int>(groups % kGroupsPerUnit);
  return static_cast<uint64_t>(full * unit_layout(format, kGroupsPerUnit).bytes +
                               (rest == 0 ? 0 : unit_layout(format, rest).bytes));
}

#define TOKENMILL_FOR_FORMAT(integer_call, float_call)     \
  switch (format) {                                        \
    case WeightFormat::f32:                                \
      return float_call(WeightFormat::f32);                \
    case WeightFormat::f16:                                \
      return float_call(WeightFormat::f16);                \
    case WeightFormat::bf16:                               \
      return float_call(WeightFormat::bf16);               \
    case WeightFormat::q4_0:                               \
    case WeightFormat::iq4_nl: /* the same block layout */ \
      return integer_call(WeightFormat::q4_0);             \
    case WeightFormat::q4_1:                               \
      return integer_call(WeightFormat::q4_1);             \
    case WeightFormat::q5_0:                               \
      return integer_call(WeightFormat::q5_0);             \
    case WeightFormat::q5_1:                               \
      return integer_call(WeightFormat::q5_1);             \
    case WeightFormat::q8_0:                               \
      return integer_call(WeightFormat::q8_0);             \
    case WeightFormat::q4_k:                               \
      return integer_call(WeightFormat::q4_k);             \
    case WeightFormat::q5_k:                               \
      return integer_call(WeightFormat::q5_k);             \
    case WeightFormat::q6_k:                               \
      return integer_call(WeightFormat::q6_k);             \
    case WeightFormat::count:                              \
      return;                                              \
  }

void pack_panel(WeightFormat format, const uint8_t* file_rows, int64_t rows, int64_t k, uint8_t* panel) {
#define TOKENMILL_PACK_INTEGER(f) pack_integer_panel<f>(file_rows, rows, k, panel)
#define TOKENMILL_PACK_FLOAT(f) pack_float_panel<f>(file_rows, rows, k, panel)
  TOKENMILL_FOR_FORMAT(TOKENMILL_PACK_INTEGER, TOKENMILL_PACK_FLOAT)
#undef TOKENMILL_PACK_INTEGER
#undef TOKENMILL_PACK_FLOAT
}

void unpack_row(const PackedMatrix& w, int64_t row, uint8_t* file_row) {
  const WeightFormat format = w.format;
  const uint8_t* panel = w.data + static_cast<uint64_t>(row / kRowsPerPanel) * w.panel_bytes;
  const auto lane = static_cast<int>(row % kRowsPerPanel);
#define TOKENMILL_UNPACK_INTEGER(f) unpack_integer_row<f>(panel, lane, w.k, file_row)
#define TOKENMILL_UNPACK_FLOAT(f) unpack_float_row<f>(panel, lane, w.k, file_row)
  TOKENMILL_FOR_FORMAT(TOKENMILL_UNPACK_INTEGER, TOKENMILL_UNPACK_FLOAT)
#undef TOKENMILL_UNPACK_INTEGER
#undef TOKENMILL_UNPACK_FLOAT
}
#undef TOKENMILL_FOR_FORMAT

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
