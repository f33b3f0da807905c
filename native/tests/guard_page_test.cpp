// No kernel touches memory past its arguments: every buffer ends at a page that may not be read or written, so one byte
// too far ends the test with a signal. This holds for the code that ships, where sanitizers need a build of their own.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "check.h"
#include "dispatch/test_data.h"
#include "sets_to_test.h"

namespace {

using tokenmill::Activations;
using tokenmill::KernelSet;
using tokenmill::PackedMatrix;
using tokenmill::WeightFormat;

// `count` values of T that end at a guard page. alignment: of the first one, which may leave a few bytes unguarded.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t count, uint64_t alignment = alignof(T)) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(T);
    const uint64_t padded = (bytes + alignment - 1) / alignment * alignment;
    const uint64_t usable = (padded + page - 1) / page * page;
    mapped_ = usable + page;
    base_ = static_cast<uint8_t*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + usable, page, PROT_NONE) != 0) {
      std::perror("guard page");
      std::exit(1);
    }
    data_ = reinterpret_cast<T*>(base_ + usable - padded);
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  T* data() const { return data_; }

 private:
  uint8_t* base_;
  uint64_t mapped_;
  T* data_;
};

void check_format(const KernelSet& set, WeightFormat format, int64_t rows, int64_t k, int64_t tokens) {
  if (k % tokenmill::format_info(format).block_elements != 0) {
    return;
  }
  tokenmill::TestRandom random(static_cast<uint64_t>(rows * 1000 + k + tokens));
  const uint64_t file_row = tokenmill::row_bytes(format, static_cast<uint64_t>(k));
  const std::vector<uint8_t> file = tokenmill::random_weights(random, tokenmill::ValueKind::plain, format, rows, k);
  const int64_t panels = (rows + set.panel_rows - 1) / set.panel_rows;
  const uint64_t panel_bytes = set.panel_bytes(format, k);
  const Guarded<uint8_t> packed(panels * static_cast<int64_t>(panel_bytes), 64);
  for (int64_t panel = 0; panel < panels; ++panel) {
    const int64_t first = panel * set.panel_rows;
    const int64_t count = rows - first < set.panel_rows ? rows - first : set.panel_rows;
    const Guarded<uint8_t> file_rows(count * static_cast<int64_t>(file_row));
    std::copy_n(file.data() + static_cast<uint64_t>(first) * file_row, static_cast<uint64_t>(count) * file_row,
                file_rows.data());
    set.pack_panel(format, file_rows.data(), count, k, packed.data() + static_cast<uint64_t>(panel) * panel_bytes);
  }
  const PackedMatrix matrix{.format = format, .rows = rows, .k = k, .data = packed.data(), .panel_bytes = panel_bytes};
  for (int64_t row = 0; row < rows; ++row) {
    const Guarded<uint8_t> out(static_cast<int64_t>(file_row));
    set.unpack_row(matrix, row, out.data());
  }

  const std::vector<float> values = tokenmill::random_floats(random, tokenmill::ValueKind::plain, tokens * k);
  const Guarded<float> x(tokens * k);
  std::copy(values.begin(), values.end(), x.data());
  const Guarded<int8_t> q(tokens * k);
  const Guarded<float> scale(tokens * k / tokenmill::kGroupSize);
  const Guarded<int16_t> half_sums(tokens * k / tokenmill::kHalfGroupSize);
  const Guarded<uint8_t> nonfinite(tokens);
  if (k % tokenmill::kGroupSize == 0) {
    set.quantize_rows(x.data(), k, tokens, k, {q.data(), scale.data(), half_sums.data()}, nonfinite.data());
  }
  const Guarded<int32_t> packed_input(set.packed_activation_words(format, tokens, k));
  const Activations activations{.rows = tokens,
                                .k = k,
                                .f32 = x.data(),
                                .q = q.data(),
                                .scale = scale.data(),
                                .half_sums = half_sums.data(),
                                .packed = packed_input.data()};
  set.pack_activations(format, activations, 0, tokens, packed_input.data());
  const Guarded<float> y(tokens * rows);
  set.matmul[static_cast<int>(format)](matrix, activations, 0, panels, y.data(), rows);
}

void check_rows(const KernelSet& set, int64_t n) {
  const Guarded<float> x(n);
  const Guarded<float> weight(n);
  const Guarded<float> y(n);
  set.rms_norm(x.data(), n, weight.data(), 1e-5F, 1, n, y.data(), n);
  set.gated_activation(tokenmill::Activation::silu, x.data(), weight.data(), n, y.data());
  set.gated_activation(tokenmill::Activation::gelu_tanh, x.data(), weight.data(), n, y.data());
  set.add(x.data(), y.data(), n);
}

}  // namespace

int main() {
  for (const KernelSet* set : tokenmill::test::sets_to_test()) {
    for (int format = 0; format < tokenmill::kWeightFormatCount; ++format) {
      for (const int64_t k : {32, 96, 256, 768, 1280}) {
        for (const int64_t rows : {1, 16, 17, 50}) {
          for (const int64_t tokens : {1, 2, 3, 4, 5, 7, 8, 16, 19}) {
            check_format(*set, static_cast<WeightFormat>(format), rows, k, tokens);
          }
        }
      }
    }
    for (const int64_t n : {1, 7, 15, 16, 17, 100, 576}) {
      check_rows(*set, n);
    }
    std::printf("%s stays within its buffers\n", set->name);
  }
  return tokenmill::test::finish();
}
