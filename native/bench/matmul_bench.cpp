#include "bench/matmul_bench.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "dispatch/compare_report.h"
#include "dispatch/compare_sets.h"
#include "dispatch/kernel_registry.h"
#include "dispatch/test_data.h"

namespace tokenmill {
namespace {

constexpr uint64_t kSeed = 20260101;
constexpr int64_t kBankPanels = 4;
constexpr int64_t kMostRows = int64_t{1} << 20;

void check_shape(const MatmulBenchShape& shape) {
  const bool sizes = shape.rows >= 1 && shape.rows <= kMostRows && shape.k >= 1 && shape.k <= kMostRows &&
                     shape.most_tokens >= 1 && shape.most_tokens <= kMostRows;
  if (!sizes) throw std::invalid_argument("rows, columns and tokens must be 1 to " + std::to_string(kMostRows));
  if (shape.k % kGroupSize != 0 || row_bytes(shape.format, unsigned_size(shape.k)) == 0) {
    throw std::invalid_argument("rows of " + std::to_string(shape.k) + " weights are no whole blocks of " +
                                format_info(shape.format).name);
  }
}

}  // namespace

MatmulBench::MatmulBench(const KernelSet& kernels, BenchThreads& threads, const MatmulBenchShape& shape,
                         uint64_t cold_bytes)
    : kernels_(kernels), threads_(threads), shape_(shape) {
  check_shape(shape);
  const int64_t panel_rows = kernels.panel_rows;
  panels_ = (shape.rows + panel_rows - 1) / panel_rows;
  panel_bytes_ = kernels.panel_bytes(shape.format, shape.k);
  matrix_bytes_ = unsigned_size(panels_) * panel_bytes_;
  copies_ = static_cast<int64_t>(std::max<uint64_t>(1, (cold_bytes + matrix_bytes_ - 1) / matrix_bytes_));
  const int64_t bank_panels = std::min(kBankPanels, panels_);
  bank_rows_ = bank_panels * panel_rows;
  TestRandom random(kSeed);
  bank_file_ = random_weights(random, ValueKind::plain, shape.format, bank_rows_, shape.k);
  const uint64_t file_row = row_bytes(shape.format, unsigned_size(shape.k));

  packed_ = HugeRegion(unsigned_size(copies_) * matrix_bytes_, false, threads.nodes());
  threads_.time(copies_ * panels_, 1, [&](int, int64_t index, int64_t) {
    const int64_t panel = index % panels_;
    uint8_t* to = packed_.data() + unsigned_size(index) * panel_bytes_;
    if (index >= bank_panels && panel != panels_ - 1) return;  // copied below
    kernels_.pack_panel(shape_.format, bank_file_.data() + unsigned_size(panel % bank_panels * panel_rows) * file_row,
                        std::min(panel_rows, shape_.rows - panel * panel_rows), shape_.k, to);
  });
  threads_.time(copies_ * panels_, panels_, [&](int, int64_t begin, int64_t end) {
    for (int64_t index = std::max(begin, bank_panels); index < end; ++index) {
      const int64_t panel = index % panels_;
      if (panel == panels_ - 1) continue;
      std::memcpy(packed_.data() + unsigned_size(index) * panel_bytes_,
                  packed_.data() + unsigned_size(panel % bank_panels) * panel_bytes_, panel_bytes_);
    }
  });

  x_ = random_floats(random, ValueKind::plain, shape.most_tokens * shape.k);
  const int64_t elements = shape.most_tokens * shape.k;
  q_.reserve(elements);
  scale_.reserve(elements / kGroupSize);
  half_sums_.reserve(elements / kHalfGroupSize);
  packed_input_.reserve(kernels_.packed_activation_words(shape.format, shape.most_tokens, shape.k));
  y_.reserve(shape.most_tokens * shape.rows);
  std::vector<uint8_t> nonfinite(unsigned_size(shape.most_tokens));
  reference_kernel_set().quantize_rows(x_.data(), shape.k, shape.most_tokens, shape.k,
                                       {q_.data(), scale_.data(), half_sums_.data()}, nonfinite.data());
}

Activations MatmulBench::activations(int64_t tokens) const {
  return {tokens, shape_.k, x_.data(), q_.data(), scale_.data(), half_sums_.data(), packed_input_.data()};
}

double MatmulBench::multiply(int64_t tokens) {
  if (tokens < 1 || tokens > shape_.most_tokens) {
    throw std::invalid_argument("tokens must be 1 to " + std::to_string(shape_.most_tokens));
  }
  const uint8_t* data = packed_.data() + unsigned_size(next_copy_) * matrix_bytes_;
  next_copy_ = (next_copy_ + 1) % copies_;
  const PackedMatrix matrix{shape_.format, shape_.rows, shape_.k, data, panel_bytes_};
  const Activations x = activations(tokens);
  if (packed_tokens_ != tokens) {  // outside the time: a step packs once for all matrices that read the same input
    kernels_.pack_activations(shape_.format, x, 0, tokens, packed_input_.data());
    packed_tokens_ = tokens;
  }
  const auto matmul = kernels_.matmul[static_cast<int>(shape_.format)];
  return threads_.time(panels_, even_piece(panels_, threads_.size()),
                       [&](int, int64_t begin, int64_t end) { matmul(matrix, x, begin, end, y_.data(), shape_.rows); });
}

std::string MatmulBench::check(int64_t tokens) {
  std::fill_n(y_.data(), shape_.most_tokens * shape_.rows, kUntouched);
  multiply(tokens);
  const KernelSet& reference = reference_kernel_set();
  const int64_t reference_panels = bank_rows_ / reference.panel_rows;
  const uint64_t reference_bytes = reference.panel_bytes(shape_.format, shape_.k);
  const uint64_t file_row = row_bytes(shape_.format, unsigned_size(shape_.k));
  const AlignedBytes packed(unsigned_size(reference_panels) * reference_bytes);
  const PackedMatrix matrix{shape_.format, bank_rows_, shape_.k, packed.data(), reference_bytes};
  std::vector<float> bank(unsigned_size(tokens * bank_rows_));
  const Activations x = activations(tokens);
  threads_.time(reference_panels, 1, [&](int, int64_t panel, int64_t) {
    reference.pack_panel(shape_.format, bank_file_.data() + unsigned_size(panel * reference.panel_rows) * file_row,
                         reference.panel_rows, shape_.k, packed.data() + unsigned_size(panel) * reference_bytes);
    reference.matmul[static_cast<int>(shape_.format)](matrix, x, panel, panel + 1, bank.data(), bank_rows_);
  });
  std::vector<float> want(unsigned_size(tokens * shape_.rows));
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t n = 0; n < shape_.rows; ++n) {
      want[unsigned_size(t * shape_.rows + n)] = bank[unsigned_size(t * bank_rows_ + n % bank_rows_)];
    }
  }
  return difference(describe(matmul_name(shape_.format), {{"rows", shape_.rows}, {"k", shape_.k}, {"tokens", tokens}}),
                    std::vector<float>(y_.data(), y_.data() + tokens * shape_.rows), want);
}

std::vector<double> MatmulBench::run(int64_t tokens, const Repeats& repeats) {
  return repeat(repeats, [&] { return multiply(tokens); });
}

}  // namespace tokenmill
