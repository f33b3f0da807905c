// The packed layout of the reference set is the file's own: a panel is one row of file blocks.
#include <cstring>

#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

uint64_t panel_bytes(WeightFormat format, int64_t k) { return row_bytes(format, static_cast<uint64_t>(k)); }

void pack_panel(WeightFormat format, const uint8_t* file_rows, int64_t rows, int64_t k, uint8_t* panel) {
  if (rows > 0) {
    std::memcpy(panel, file_rows, panel_bytes(format, k));
  } else {
    std::memset(panel, 0, panel_bytes(format, k));
  }
}

void unpack_row(const PackedMatrix& w, int64_t row, uint8_t* file_row) {
  std::memcpy(file_row, w.data + static_cast<uint64_t>(row) * w.panel_bytes, w.panel_bytes);
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
