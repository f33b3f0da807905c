#include "decoder/single_kernels.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "decoder/workspace.h"
#include "threads/thread_pool.h"
#include "threads/work_phases.h"

namespace tokenmill {

void check_matrix_bytes(WeightFormat format, uint64_t bytes, int64_t rows, int64_t k) {
  constexpr int64_t kMaxSize = int64_t{1} << 26;
  if (rows < 1 || rows > kMaxSize || k < 1 || k > kMaxSize) {
    throw std::invalid_argument("rows and k must be 1 to " + std::to_string(kMaxSize));
  }
  const uint64_t row = row_bytes(format, static_cast<uint64_t>(k));
  if (row == 0 || row * static_cast<uint64_t>(rows) != bytes) {
    throw std::invalid_argument(std::to_string(bytes) + " bytes are not a " + format_info(format).name +
                                " matrix of [" + std::to_string(rows) + ", " + std::to_string(k) + "]");
  }
}

void multiply_once(const KernelSet& kernels, WeightFormat format, std::span<const uint8_t> file, int64_t rows,
                   const FloatRows& x, int threads, float* y) {
  ThreadPool pool(threads, {});
  const int64_t panel_rows = kernels.panel_rows;
  const int64_t panels = (rows + panel_rows - 1) / panel_rows;
  const uint64_t panel_bytes = kernels.panel_bytes(format, x.k);
  const uint64_t row = row_bytes(format, static_cast<uint64_t>(x.k));
  ScratchBuffer<uint8_t> packed;
  packed.reserve(panels * static_cast<int64_t>(panel_bytes));
  const PackedMatrix matrix{format, rows, x.k, packed.data(), panel_bytes};
  ScratchBuffer<int8_t> q;
  ScratchBuffer<float> scale;
  ScratchBuffer<int16_t> half_sums;
  ScratchBuffer<int32_t> input;
  std::vector<uint8_t> nonfinite(static_cast<size_t>(x.rows));
  const bool integer = format_info(format).integer;
  if (integer) {
    q.reserve(x.rows * x.k);
    scale.reserve(x.rows * x.k / kGroupSize);
    half_sums.reserve(x.rows * x.k / kHalfGroupSize);
    input.reserve(kernels.packed_activation_words(format, x.rows, x.k));
  }
  const Activations activations{x.rows, x.k, x.data, q.data(), scale.data(), half_sums.data(), input.data()};
  WorkPhases work;
  work.reset(3);
  pool.run([&](int) {
    work.run(0, panels, 1, [&](int64_t panel, int64_t) {
      kernels.pack_panel(format, file.data() + static_cast<uint64_t>(panel * panel_rows) * row,
                         std::min(panel_rows, rows - panel * panel_rows), x.k,
                         packed.data() + static_cast<uint64_t>(panel) * panel_bytes);
    });
    work.run(1, integer ? 1 : 0, 1, [&](int64_t, int64_t) {
      kernels.quantize_rows(x.data, x.k, x.rows, x.k, {q.data(), scale.data(), half_sums.data()}, nonfinite.data());
      kernels.pack_activations(format, activations, 0, x.rows, input.data());
    });
    work.run(2, panels, 1, [&](int64_t begin, int64_t end) {
      kernels.matmul[static_cast<int>(format)](matrix, activations, begin, end, y, rows);
    });
  });
}

}  // namespace tokenmill
