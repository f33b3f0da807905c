# Sources of a kernel set that this machine's CPU may lack, compiled once more for the tests over SIMDe (Debian's
# libsimde-dev), which spells each instruction out in portable code. simde/immintrin.h there stands in for the compiler's.
add_library(emulated_sets INTERFACE)
find_path(SIMDE_INCLUDE_DIR simde/x86/avx512.h)
if(TARGET kernels_x86_avx512_vnni AND SIMDE_INCLUDE_DIR)
  file(GLOB emulated_sources CONFIGURE_DEPENDS native/kernels/x86_avx512_vnni/*.cpp)
  add_library(kernels_x86_avx512_vnni_emulated OBJECT ${emulated_sources})
  target_include_directories(kernels_x86_avx512_vnni_emulated PRIVATE native)
  target_include_directories(kernels_x86_avx512_vnni_emulated SYSTEM BEFORE PRIVATE
    native/tests/simde ${SIMDE_INCLUDE_DIR})
  # Optimized emulation takes minutes to compile; and GCC 12 crashes in its scalar replacement of SIMDe's unions.
  target_compile_options(kernels_x86_avx512_vnni_emulated PRIVATE -mavx2 -mfma -mf16c -O1
    $<$<CXX_COMPILER_ID:GNU>:-fno-tree-sra>)
  target_compile_definitions(kernels_x86_avx512_vnni_emulated PRIVATE
    TOKENMILL_SET_NAMESPACE=x86_avx512_vnni_emulated SIMDE_NO_INLINE)
  # clang-tidy sees these sources once, as the set they are.
  set_target_properties(kernels_x86_avx512_vnni_emulated PROPERTIES EXPORT_COMPILE_COMMANDS OFF)
  target_compile_definitions(emulated_sets INTERFACE TOKENMILL_EMULATED_AVX512)
  target_sources(emulated_sets INTERFACE $<TARGET_OBJECTS:kernels_x86_avx512_vnni_emulated>)
else()
  message(STATUS "No SIMDe here: kernel sets that this CPU lacks are not tested (apt-get install libsimde-dev)")
endif()
