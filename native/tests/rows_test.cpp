// Row functions of every set have the reference's bits, for sizes around the vector width and values at their extremes.
#include "check.h"
#include "dispatch/compare_sets.h"
#include "sets_to_test.h"

namespace {

using tokenmill::Activation;
using tokenmill::KernelSet;
using tokenmill::RopeStyle;
using tokenmill::ValueKind;
using tokenmill::test::expect_same;

constexpr ValueKind kKinds[] = {ValueKind::plain, ValueKind::extreme};
constexpr int kSeeds = 5;

void check_quantize(const KernelSet& set) {
  for (const int64_t k : {32, 64, 96, 288, 576, 896, 4864}) {
    for (const int64_t rows : {1, 2, 3, 17}) {
      for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        for (const ValueKind kind : kKinds) {
          expect_same(set.name, compare_quantize_rows(set, kind, rows, k, seed));
        }
      }
    }
  }
}

void check_norm_add_and_activation(const KernelSet& set) {
  for (const int64_t n : {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 80, 100, 128, 576, 896, 1000, 4096}) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      for (const ValueKind kind : kKinds) {
        expect_same(set.name, compare_rms_norm(set, kind, 3, n, seed));
        expect_same(set.name, compare_add(set, kind, n, seed));
        expect_same(set.name, compare_gated_activation(set, Activation::silu, kind, n, seed));
        expect_same(set.name, compare_gated_activation(set, Activation::gelu_tanh, kind, n, seed));
      }
    }
  }
}

void check_rope(const KernelSet& set) {
  for (const RopeStyle style : {RopeStyle::none, RopeStyle::interleaved, RopeStyle::half}) {
    for (const int64_t head_dim : {8, 64, 72, 80, 96, 128, 256}) {
      for (const int64_t rotary_dim : {head_dim, head_dim / 2, head_dim / 4}) {
        for (const int64_t heads : {1, 3}) {
          expect_same(set.name, compare_rope(set, style, heads, head_dim, rotary_dim, 7));
        }
      }
    }
  }
}

// The exponential inside the activations, at every float of a fine sweep and not only at random ones.
void check_activation_sweep(const KernelSet& set) {
  std::vector<float> gate;
  for (int32_t i = -155000; i <= 155000; ++i) {
    gate.push_back(static_cast<float>(i) * 0.00071F);
  }
  const std::vector<float> up(gate.size(), 1.0F);
  std::vector<float> got(gate.size());
  std::vector<float> want(gate.size());
  const auto count = static_cast<int64_t>(gate.size());
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    set.gated_activation(activation, gate.data(), up.data(), count, got.data());
    tokenmill::reference_kernel_set().gated_activation(activation, gate.data(), up.data(), count, want.data());
    for (uint64_t i = 0; i < gate.size(); ++i) {
      tokenmill::test::expect(got[i] == want[i], std::string(set.name) + ": activation of " + std::to_string(gate[i]));
    }
  }
}

}  // namespace

int main() {
  for (const KernelSet* set : tokenmill::test::sets_to_test()) {
    check_quantize(*set);
    check_norm_add_and_activation(*set);
    check_rope(*set);
    check_activation_sweep(*set);
  }
  return tokenmill::test::finish();
}
