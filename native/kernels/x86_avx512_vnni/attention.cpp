// clang-format off: the vector type comes before the code over it
#include "kernels/x86_avx512_vnni/vec16.h"
#include "kernels/shared/attention-inl.h"
