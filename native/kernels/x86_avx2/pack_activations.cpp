#include "kernels/x86_avx2/matmul_integer-inl.h"
// After the kernels that it packs for.
#include "kernels/shared/pack_activations-inl.h"
