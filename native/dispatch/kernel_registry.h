// The kernel sets that this build holds.
#pragma once
#include <string_view>
#include <vector>

#include "contract/kernel_set.h"

namespace tokenmill {

// All compiled sets, highest rank first; the reference set is always the last.
const std::vector<const KernelSet*>& kernel_sets();

// The set of that name, or nullptr.
const KernelSet* find_kernel_set(std::string_view name);

// The meaning of every function (rank 0).
const KernelSet& reference_kernel_set();

}  // namespace tokenmill
