#include "kernels/x86_avx512_vnni/matmul_integer-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

void matmul_q6_k(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y,
                 int64_t y_stride) {
  matmul_integer<IntegerKernel<WeightFormat::q6_k>>(w, x, panel_begin, panel_end, y, y_stride);
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
