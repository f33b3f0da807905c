#include "dispatch/detect_cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace tokenmill {
namespace {

struct FeatureBit {
  CpuFeature feature;
  int bit;
};

template <int count>
CpuFeatureMask collect(const FeatureBit (&bits)[count], uint64_t word) {
  CpuFeatureMask mask = 0;
  for (const FeatureBit& entry : bits) {
    if ((word >> entry.bit & 1U) != 0) {
      mask |= feature_bit(entry.feature);
    }
  }
  return mask;
}

// XCR0 bits: SSE 1, AVX 2; AVX-512 opmask 5, upper ZMM 6, ZMM16-31 7; AMX tile configuration 17 and data 18.
constexpr uint64_t kAvxState = 0x6;
constexpr uint64_t kAvx512State = kAvxState | 0xE0;
constexpr uint64_t kAmxState = uint64_t{3} << 17;
constexpr int kOsxsaveBit = 27;  // leaf 1 ECX: the operating system uses XSAVE, so XGETBV exists

constexpr FeatureBit kAvxLeaf1Ecx[] = {{CpuFeature::avx, 28}, {CpuFeature::fma, 12}, {CpuFeature::f16c, 29}};
constexpr FeatureBit kAvxLeaf7Ebx[] = {{CpuFeature::avx2, 5}};
constexpr FeatureBit kAvxLeaf71Eax[] = {{CpuFeature::avx_vnni, 4}};
constexpr FeatureBit kAvx512Leaf7Ebx[] = {
    {CpuFeature::avx512f, 16}, {CpuFeature::avx512dq, 17}, {CpuFeature::avx512bw, 30}, {CpuFeature::avx512vl, 31}};
constexpr FeatureBit kAvx512Leaf7Ecx[] = {{CpuFeature::avx512_vbmi, 1}, {CpuFeature::avx512_vnni, 11}};
constexpr FeatureBit kAmxLeaf7Edx[] = {{CpuFeature::amx_tile, 24}, {CpuFeature::amx_int8, 25}};
constexpr FeatureBit kGeneralLeaf7Ebx[] = {{CpuFeature::bmi2, 8}};

// Linux, arch/arm64/include/uapi/asm/hwcap.h.
constexpr FeatureBit kHwcap[] = {{CpuFeature::asimd, 1}, {CpuFeature::asimddp, 20}, {CpuFeature::sve, 22}};
constexpr FeatureBit kHwcap2[] = {{CpuFeature::sve2, 1}, {CpuFeature::svei8mm, 9}, {CpuFeature::i8mm, 13}};

#if defined(__x86_64__)
X86Registers read_x86_registers() {
  X86Registers registers;
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) {
    registers.leaf1_ecx = ecx;
  }
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    registers.leaf7_ebx = ebx;
    registers.leaf7_ecx = ecx;
    registers.leaf7_edx = edx;
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
      registers.leaf7_1_eax = eax;
    }
  }
  if ((registers.leaf1_ecx >> kOsxsaveBit & 1U) != 0) {
    uint32_t low = 0;
    uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    registers.xcr0 = (uint64_t{high} << 32) | low;
  }
  return registers;
}
#endif

}  // namespace

CpuFeatureMask features_from_x86(const X86Registers& registers) {
  CpuFeatureMask mask = collect(kGeneralLeaf7Ebx, registers.leaf7_ebx);
  const uint64_t saved = (registers.leaf1_ecx >> kOsxsaveBit & 1U) != 0 ? registers.xcr0 : 0;
  if ((saved & kAvxState) == kAvxState) {
    mask |= collect(kAvxLeaf1Ecx, registers.leaf1_ecx) | collect(kAvxLeaf7Ebx, registers.leaf7_ebx) |
            collect(kAvxLeaf71Eax, registers.leaf7_1_eax);
  }
  if ((saved & kAvx512State) == kAvx512State) {
    mask |= collect(kAvx512Leaf7Ebx, registers.leaf7_ebx) | collect(kAvx512Leaf7Ecx, registers.leaf7_ecx);
  }
  if ((saved & kAmxState) == kAmxState) {
    mask |= collect(kAmxLeaf7Edx, registers.leaf7_edx);
  }
  return mask;
}

CpuFeatureMask features_in_cpuid(X86Registers registers) {
  registers.leaf1_ecx |= 1U << kOsxsaveBit;
  registers.xcr0 = ~uint64_t{0};
  return features_from_x86(registers);
}

CpuFeatureMask features_from_aarch64(uint64_t hwcap, uint64_t hwcap2) {
  return collect(kHwcap, hwcap) | collect(kHwcap2, hwcap2);
}

CpuReport report_cpu() {
#if defined(__x86_64__)
  const X86Registers registers = read_x86_registers();
  return {.known = feature_bit(CpuFeature::asimd) - 1,
          .reported = features_in_cpuid(registers),
          .usable = features_from_x86(registers),
          .xcr0 = registers.xcr0};
#elif defined(__aarch64__) && defined(__linux__)
  // The kernel lists only what programs may use.
  const CpuFeatureMask usable = features_from_aarch64(getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
  return {
      .known = feature_bit(CpuFeature::count) - feature_bit(CpuFeature::asimd), .reported = usable, .usable = usable};
#else
  return {};
#endif
}

CpuFeatureMask detect_cpu_features() { return report_cpu().usable; }

}  // namespace tokenmill
