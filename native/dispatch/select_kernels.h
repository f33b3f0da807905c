// Chooses the kernel set of this process: once, and never something else than what was asked for.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "contract/kernel_set.h"

namespace tokenmill {

struct KernelSelection {
  const KernelSet* set = nullptr;  // null when there is an error
  std::string error;               // names the choices and what each one lacks
};

// Names of the features that the set requires and `available` lacks; empty when the set is usable.
std::vector<std::string> missing_features(const KernelSet& set, CpuFeatureMask available);

// With an empty `forced`: the usable set of the highest rank. The reference set is many times slower than any other, so
// it is only taken when forced by name. With a name: that set, or an error when it is unknown or cannot run here.
KernelSelection select_kernel_set(std::string_view forced, CpuFeatureMask available);

}  // namespace tokenmill
