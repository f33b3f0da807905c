#include "kernels/shared/kernel_table-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

namespace {
constexpr CpuFeatureMask kRequired =
    feature_bit(CpuFeature::avx) | feature_bit(CpuFeature::avx2) | feature_bit(CpuFeature::fma) |
    feature_bit(CpuFeature::f16c) | feature_bit(CpuFeature::avx512f) | feature_bit(CpuFeature::avx512bw) |
    feature_bit(CpuFeature::avx512dq) | feature_bit(CpuFeature::avx512vl) | feature_bit(CpuFeature::avx512_vnni);
}  // namespace

constinit const KernelSet kernel_set = TOKENMILL_KERNEL_TABLE("x86_avx512_vnni", kRequired, 200, 16, peak_loops);

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
