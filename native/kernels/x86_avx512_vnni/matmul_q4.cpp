#include "kernels/x86_avx512_vnni/matmul_integer-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

void matmul_q4_0(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y,
                 int64_t y_stride) {
  matmul_integer<IntegerKernel<WeightFormat::q4_0>>(w, x, panel_begin, panel_end, y, y_stride);
}

void matmul_q4_1(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y,
                 int64_t y_stride) {
  matmul_integer<IntegerKernel<WeightFormat::q4_1>>(w, x, panel_begin, panel_end, y, y_stride);
}

void matmul_q4_k(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y,
                 int64_t y_stride) {
  matmul_integer<IntegerKernel<WeightFormat::q4_k>>(w, x, panel_begin, panel_end, y, y_stride);
}

void matmul_iq4_nl(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y,
                   int64_t y_stride) {
  matmul_integer<IntegerKernel<WeightFormat::iq4_nl>>(w, x, panel_begin, panel_end, y, y_stride);
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
