// Every set's packed panels give back the file's bytes, for every format, shape of the last panel and of the last unit.
#include "check.h"
#include "dispatch/compare_sets.h"
#include "sets_to_test.h"

namespace {

using tokenmill::ValueKind;
using tokenmill::WeightFormat;

constexpr int64_t kRows[] = {1, 15, 16, 17, 33, 48};
constexpr int64_t kWidths[] = {32, 64, 96, 224, 256, 288, 544, 576, 896, 1024, 2048};

void check_format(const tokenmill::KernelSet& set, WeightFormat format) {
  uint64_t seed = 0;
  for (const int64_t rows : kRows) {
    for (const int64_t k : kWidths) {
      if (k % tokenmill::format_info(format).block_elements != 0) {
        continue;
      }
      for (const ValueKind kind : {ValueKind::plain, ValueKind::extreme}) {
        tokenmill::test::expect_same(set.name, tokenmill::compare_packing(set, format, kind, rows, k, ++seed));
      }
    }
  }
}

}  // namespace

int main() {
  std::vector<const tokenmill::KernelSet*> sets = tokenmill::test::sets_to_test();
  sets.push_back(&tokenmill::reference_kernel_set());
  for (const tokenmill::KernelSet* set : sets) {
    for (int format = 0; format < tokenmill::kWeightFormatCount; ++format) {
      check_format(*set, static_cast<WeightFormat>(format));
    }
  }
  return tokenmill::test::finish();
}
