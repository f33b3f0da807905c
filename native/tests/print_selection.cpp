// Prints this CPU's features, the set that is chosen (or the one named by the first argument) and whether it passes the
// self-test. Run under emulated CPUs by native/tests/emulated_cpus.cmake.
#include <cstdio>

#include "dispatch/detect_cpu.h"
#include "dispatch/select_kernels.h"
#include "dispatch/self_test.h"

int main(int argc, char** argv) {
  const tokenmill::CpuFeatureMask features = tokenmill::detect_cpu_features();
  std::printf("features:");
  for (int i = 0; i < tokenmill::kCpuFeatureCount; ++i) {
    if ((features & tokenmill::feature_bit(static_cast<tokenmill::CpuFeature>(i))) != 0) {
      std::printf(" %s", tokenmill::kCpuFeatureNames[i]);
    }
  }
  const tokenmill::KernelSelection selection = tokenmill::select_kernel_set(argc > 1 ? argv[1] : "", features);
  if (selection.set == nullptr) {
    std::printf("\nrefused: %s\n", selection.error.c_str());
    return 2;
  }
  const std::vector<std::string> failures = tokenmill::self_test(*selection.set);
  std::printf("\nselected: %s, %s the self-test\n", selection.set->name, failures.empty() ? "passes" : "fails");
  for (const std::string& failure : failures) {
    std::printf("  %s\n", failure.c_str());
  }
  return failures.empty() ? 0 : 1;
}
