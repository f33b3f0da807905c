// Which functions of a set are the reference's own: slow, and therefore rare and listed (docs/kernels.md).
#pragma once
#include <string>
#include <vector>

#include "contract/kernel_set.h"

namespace tokenmill {

// Names as in self_test_functions(); empty for the reference set itself.
std::vector<std::string> borrowed_functions(const KernelSet& set);

}  // namespace tokenmill
