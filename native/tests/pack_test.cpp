// Every set's packed panels give back the file's bytes, for every format, shape of the last panel and of the last unit.
#include <cstdio>

#include "dispatch/compare_sets.h"
#include "dispatch/detect_cpu.h"
#include "dispatch/kernel_registry.h"

namespace {

using tokenmill::ValueKind;
using tokenmill::WeightFormat;

constexpr int64_t kRows[] = {1, 15, 16, 17, 33, 48};
constexpr int64_t kWidths[] = {32, 64, 96, 224, 256, 288, 544, 576, 896, 1024, 2048};

int failures_of(const tokenmill::KernelSet& set, WeightFormat format) {
  int failures = 0;
  uint64_t seed = 1;
  for (const int64_t rows : kRows) {
    for (const int64_t k : kWidths) {
      if (k % tokenmill::format_info(format).block_elements != 0) {
        continue;
      }
      for (const ValueKind kind : {ValueKind::plain, ValueKind::extreme}) {
        const std::string difference = tokenmill::compare_packing(set, format, kind, rows, k, ++seed);
        if (!difference.empty()) {
          std::fprintf(stderr, "%s: %s\n", set.name, difference.c_str());
          ++failures;
        }
      }
    }
  }
  return failures;
}

}  // namespace

int main() {
  int failures = 0;
  for (const tokenmill::KernelSet* set : tokenmill::kernel_sets()) {
    if ((set->required & ~tokenmill::detect_cpu_features()) != 0) {
      std::printf("skipped: %s, this CPU cannot run it\n", set->name);
      continue;
    }
    for (int format = 0; format < tokenmill::kWeightFormatCount; ++format) {
      failures += failures_of(*set, static_cast<WeightFormat>(format));
    }
  }
  return failures == 0 ? 0 : 1;
}
