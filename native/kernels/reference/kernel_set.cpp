#include "kernels/shared/kernel_table-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

constinit const KernelSet kernel_set = TOKENMILL_KERNEL_TABLE("reference", CpuFeatureMask{0}, 0, 1);

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
