// Every set's matrix products have the reference's bits: all formats, every number of tokens around the tiles, rows
// that fill no panel, K that fills no unit, and K and values at their extremes. Nothing is written past the matrix's
// rows.
#include "check.h"
#include "dispatch/compare_sets.h"
#include "sets_to_test.h"

namespace {

using tokenmill::KernelSet;
using tokenmill::MatmulShape;
using tokenmill::ValueKind;
using tokenmill::WeightFormat;

void check(const KernelSet& set, WeightFormat format, const MatmulShape& shape) {
  if (shape.k % tokenmill::format_info(format).block_elements != 0) {
    return;
  }
  const auto seed = static_cast<uint64_t>(shape.rows * 31 + shape.k * 7 + shape.tokens);
  for (const ValueKind kind : {ValueKind::plain, ValueKind::extreme}) {
    tokenmill::test::expect_same(set.name, tokenmill::compare_matmul(set, format, kind, shape, seed));
  }
}

void check_format(const KernelSet& set, WeightFormat format) {
  for (int64_t tokens = 1; tokens <= 20; ++tokens) {
    check(set, format, {.rows = 33, .k = 512, .tokens = tokens});
    check(set, format, {.rows = 80, .k = 288, .tokens = tokens});
  }
  for (const int64_t rows : {1, 15, 16, 17, 31, 64, 130}) {
    for (const int64_t tokens : {1, 2, 3, 7, 13}) {
      check(set, format, {.rows = rows, .k = 768, .tokens = tokens});
      check(set, format, {.rows = rows, .k = 32, .tokens = tokens});
    }
  }
  for (const int64_t k : {64, 96, 544, 576, 896, 1056, 1280, 2048, 2304, 4096, 11008, 28672}) {
    for (const int64_t tokens : {1, 6, 9}) {
      check(set, format, {.rows = 18, .k = k, .tokens = tokens});
    }
  }
  for (const int64_t tokens : {64, 127, 200}) {  // several blocks of tokens
    check(set, format, {.rows = 20, .k = 1280, .tokens = tokens});
  }
}

}  // namespace

int main() {
  for (const KernelSet* set : tokenmill::test::sets_to_test()) {
    for (int format = 0; format < tokenmill::kWeightFormatCount; ++format) {
      check_format(*set, static_cast<WeightFormat>(format));
    }
  }
  return tokenmill::test::finish();
}
