#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

// The reference reads quantized rows as they are.
int32_t activation_packing(WeightFormat /*format*/) { return -1; }

int64_t packed_activation_words(WeightFormat /*format*/, int64_t /*rows*/, int64_t /*k*/) { return 0; }

void pack_activations(WeightFormat /*format*/, const Activations& /*x*/, int64_t /*row_begin*/, int64_t /*row_end*/,
                      int32_t* /*packed*/) {}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
