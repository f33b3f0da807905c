// Packing of activations for a set whose integer kernels are IntegerKernel<format>: defines activation_packing,
// packed_activation_words and pack_activations. Included once, after the set's matmul_integer-inl.h.
#pragma once
#include "kernels/shared/activation_records-inl.h"
#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

// run(IntegerKernel<format>{}) for an integer format known at run time, else `otherwise`.
template <typename Result, typename Run>
Result with_kernel(WeightFormat format, Result otherwise, const Run& run) {
  switch (format) {
    case WeightFormat::q4_0:
      return run(IntegerKernel<WeightFormat::q4_0>{});
    case WeightFormat::q4_1:
      return run(IntegerKernel<WeightFormat::q4_1>{});
    case WeightFormat::q5_0:
      return run(IntegerKernel<WeightFormat::q5_0>{});
    case WeightFormat::q5_1:
      return run(IntegerKernel<WeightFormat::q5_1>{});
    case WeightFormat::q8_0:
      return run(IntegerKernel<WeightFormat::q8_0>{});
    case WeightFormat::q4_k:
      return run(IntegerKernel<WeightFormat::q4_k>{});
    case WeightFormat::q5_k:
      return run(IntegerKernel<WeightFormat::q5_k>{});
    case WeightFormat::q6_k:
      return run(IntegerKernel<WeightFormat::q6_k>{});
    case WeightFormat::iq4_nl:
      return run(IntegerKernel<WeightFormat::iq4_nl>{});
    default:
      return otherwise;
  }
}

}  // namespace

int32_t activation_packing(WeightFormat format) {
  return with_kernel(format, -1, [](auto kernel) { return int32_t{decltype(kernel)::kPacking}; });
}

int64_t packed_activation_words(WeightFormat format, int64_t rows, int64_t k) {
  return with_kernel(format, int64_t{0}, [&](auto kernel) {
    return ActivationTiles{rows, k / kGroupSize, decltype(kernel)::kQuadWords}.words();
  });
}

void pack_activations(WeightFormat format, const Activations& x, int64_t row_begin, int64_t row_end, int32_t* packed) {
  with_kernel(format, 0, [&](auto kernel) {
    pack_tokens<decltype(kernel)>(x, row_begin, row_end, packed);
    return 0;
  });
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
