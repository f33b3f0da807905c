#include "dispatch/select_kernels.h"

#include "dispatch/kernel_registry.h"

namespace tokenmill {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += text.empty() ? word : ", " + word;
  }
  return text;
}

// "x86_avx512_vnni (lacks avx512f, avx512bw), x86_avx2, reference"
std::string describe_choices(CpuFeatureMask available) {
  std::vector<std::string> choices;
  for (const KernelSet* set : kernel_sets()) {
    const std::vector<std::string> missing = missing_features(*set, available);
    choices.push_back(missing.empty() ? set->name : std::string(set->name) + " (lacks " + join(missing) + ")");
  }
  return join(choices);
}

}  // namespace

std::vector<std::string> missing_features(const KernelSet& set, CpuFeatureMask available) {
  std::vector<std::string> missing;
  for (int i = 0; i < kCpuFeatureCount; ++i) {
    const CpuFeatureMask bit = feature_bit(static_cast<CpuFeature>(i));
    if ((set.required & bit) != 0 && (available & bit) == 0) {
      missing.emplace_back(kCpuFeatureNames[i]);
    }
  }
  return missing;
}

KernelSelection select_kernel_set(std::string_view forced, CpuFeatureMask available) {
  if (!forced.empty()) {
    const KernelSet* set = find_kernel_set(forced);
    if (set == nullptr) {
      return {nullptr, "there is no kernel set '" + std::string(forced) +
                           "' in this build; the choices here are: " + describe_choices(available)};
    }
    const std::vector<std::string> missing = missing_features(*set, available);
    if (!missing.empty()) {
      return {nullptr, "kernel set '" + std::string(forced) +
                           "' cannot run here: the CPU (or the operating system or hypervisor above it) lacks " +
                           join(missing) + "; the choices here are: " + describe_choices(available)};
    }
    return {set, ""};
  }
  for (const KernelSet* set : kernel_sets()) {
    if (set != &reference_kernel_set() && missing_features(*set, available).empty()) {
      return {set, ""};
    }
  }
  return {nullptr,
          "no fast kernel set of this build can run on this CPU: " + describe_choices(available) +
              ". The reference set runs anywhere but is many times slower; it is used only when asked for: set "
              "TOKENMILL_KERNELS=reference"};
}

}  // namespace tokenmill
