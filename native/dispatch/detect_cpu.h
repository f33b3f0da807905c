// Which instructions this CPU has and its operating system lets programs use.
#pragma once
#include <cstdint>

#include "contract/cpu_feature.h"

namespace tokenmill {

// Registers that CPUID and XGETBV return on x86; zero where a leaf does not exist.
struct X86Registers {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t leaf7_ecx = 0;
  uint32_t leaf7_edx = 0;
  uint32_t leaf7_1_eax = 0;
  uint64_t xcr0 = 0;  // register states that the operating system saves on a context switch
};

// A feature counts only where the operating system saves its registers: a kernel or hypervisor may hide AVX state while
// CPUID still shows AVX. Source: Intel SDM volume 1, sections 14.3 and 15.2-15.4.
CpuFeatureMask features_from_x86(const X86Registers& registers);

// What CPUID shows, whether or not the registers are saved.
CpuFeatureMask features_in_cpuid(X86Registers registers);

// The bits of getauxval(AT_HWCAP) and getauxval(AT_HWCAP2) on aarch64 Linux.
CpuFeatureMask features_from_aarch64(uint64_t hwcap, uint64_t hwcap2);

struct CpuReport {
  CpuFeatureMask known = 0;     // features of this architecture that a set may require
  CpuFeatureMask reported = 0;  // those that the CPU says it has
  CpuFeatureMask usable = 0;    // those whose registers the operating system saves too
  uint64_t xcr0 = 0;            // x86: register states that it saves; 0 elsewhere
};

// The CPU that runs this.
CpuReport report_cpu();

// Usable features of the CPU that runs this.
CpuFeatureMask detect_cpu_features();

}  // namespace tokenmill
