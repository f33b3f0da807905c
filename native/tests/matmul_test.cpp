// Every set's matrix products have the reference's bits: all formats, every number of tokens around the tiles, rows
// that fill no panel, K that fills no unit, and K and values at their extremes. Nothing is written past the matrix's
// rows.
#include <cstdio>

#include "dispatch/compare_sets.h"
#include "dispatch/detect_cpu.h"
#include "dispatch/kernel_registry.h"

namespace {

using tokenmill::MatmulShape;
using tokenmill::ValueKind;
using tokenmill::WeightFormat;

class Checker {
 public:
  explicit Checker(const tokenmill::KernelSet& set) : set_(set) {}

  void check(WeightFormat format, const MatmulShape& shape) {
    if (shape.k % tokenmill::format_info(format).block_elements != 0) {
      return;
    }
    for (const ValueKind kind : {ValueKind::plain, ValueKind::extreme}) {
      const std::string difference = tokenmill::compare_matmul(set_, format, kind, shape, ++seed_);
      if (!difference.empty()) {
        std::fprintf(stderr, "%s: %s\n", set_.name, difference.c_str());
        ++failures_;
      }
    }
  }

  int failures() const { return failures_; }

 private:
  const tokenmill::KernelSet& set_;
  uint64_t seed_ = 0;
  int failures_ = 0;
};

void check_format(Checker& checker, WeightFormat format) {
  for (int64_t tokens = 1; tokens <= 20; ++tokens) {
    checker.check(format, {.rows = 33, .k = 512, .tokens = tokens});
    checker.check(format, {.rows = 80, .k = 288, .tokens = tokens});
  }
  for (const int64_t rows : {1, 15, 16, 17, 31, 64, 130}) {
    for (const int64_t tokens : {1, 2, 3, 7, 13}) {
      checker.check(format, {.rows = rows, .k = 768, .tokens = tokens});
      checker.check(format, {.rows = rows, .k = 32, .tokens = tokens});
    }
  }
  for (const int64_t k : {64, 96, 544, 576, 896, 1056, 1280, 2048, 2304, 4096, 11008, 28672}) {
    for (const int64_t tokens : {1, 6, 9}) {
      checker.check(format, {.rows = 18, .k = k, .tokens = tokens});
    }
  }
  for (const int64_t tokens : {64, 127, 200}) {  // several blocks of tokens
    checker.check(format, {.rows = 20, .k = 1280, .tokens = tokens});
  }
}

}  // namespace

int main() {
  int failures = 0;
  for (const tokenmill::KernelSet* set : tokenmill::kernel_sets()) {
    if (set->rank == 0) {
      continue;
    }
    if ((set->required & ~tokenmill::detect_cpu_features()) != 0) {
      std::printf("skipped: %s, this CPU cannot run it\n", set->name);
      continue;
    }
    Checker checker(*set);
    for (int format = 0; format < tokenmill::kWeightFormatCount; ++format) {
      check_format(checker, static_cast<WeightFormat>(format));
    }
    failures += checker.failures();
  }
  return failures == 0 ? 0 : 1;
}
