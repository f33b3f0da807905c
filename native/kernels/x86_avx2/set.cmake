tokenmill_kernel_set(x86_avx2
  PROCESSORS "^(x86_64|AMD64|amd64)$"
  FLAGS -mavx2 -mfma -mf16c)
