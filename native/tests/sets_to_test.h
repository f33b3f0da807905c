// The kernel sets that a test compares with the reference on this machine.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "dispatch/detect_cpu.h"
#include "dispatch/kernel_registry.h"
#include "dispatch/select_kernels.h"

#ifdef TOKENMILL_EMULATED_AVX512
// The sources of x86_avx512_vnni over SIMDe (native/tests/emulated.cmake).
namespace tokenmill::x86_avx512_vnni_emulated {
extern const KernelSet kernel_set;
}
#endif

namespace tokenmill::test {

// Whether this CPU runs the set; an emulated one is slow.
inline bool is_usable(const KernelSet& set) {
  const KernelSet* registered = find_kernel_set(set.name);
  return registered == &set && missing_features(set, detect_cpu_features()).empty();
}

inline const KernelSet* emulated_set(std::string_view name, CpuFeatureMask available) {
#ifdef TOKENMILL_EMULATED_AVX512
  const CpuFeatureMask needed = feature_bit(CpuFeature::avx2) | feature_bit(CpuFeature::fma) |
                                feature_bit(CpuFeature::f16c);  // the emulation is compiled with these
  if (name == x86_avx512_vnni_emulated::kernel_set.name && (available & needed) == needed) {
    return &x86_avx512_vnni_emulated::kernel_set;
  }
#else
  static_cast<void>(name);
  static_cast<void>(available);
#endif
  return nullptr;
}

// All sets but the reference: those that this CPU can run, and of the others those that are emulated. A set that can
// be tested neither way is named; with CI=true that is a failure.
inline std::vector<const KernelSet*> sets_to_test() {
  const CpuFeatureMask available = detect_cpu_features();
  std::vector<const KernelSet*> sets;
  for (const KernelSet* set : kernel_sets()) {
    if (set == &reference_kernel_set()) {
      continue;
    }
    const bool usable = missing_features(*set, available).empty();
    const KernelSet* tested = usable ? set : emulated_set(set->name, available);
    if (tested != nullptr) {
      std::printf("testing %s%s\n", set->name, usable ? "" : " (emulated)");
      sets.push_back(tested);
      continue;
    }
    std::printf("SKIPPED %s: this CPU cannot run it, and no emulation of it is built here\n", set->name);
    const char* ci = std::getenv("CI");
    if (ci != nullptr && std::string_view(ci) == "true") {
      std::exit(1);
    }
  }
  return sets;
}

}  // namespace tokenmill::test
