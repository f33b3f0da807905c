# GCC 12 takes the deliberately undefined operands inside its own AVX-512 headers for mistakes.
tokenmill_kernel_set(x86_avx512_vnni
  PROCESSORS "^(x86_64|AMD64|amd64)$"
  FLAGS -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
        $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
