// The row functions of a kernel set, each timed alone on one thread with data in the second-level cache.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "bench/bench_threads.h"
#include "bench/limits.h"
#include "contract/kernel_set.h"

namespace tokenmill {

// Names that run_row_function takes, by the members of KernelSet.
std::vector<std::string> row_functions();

// Runs a function over 8 rows of `width` floats (a positive multiple of 128). The work's amount is in elements.
// Throws std::invalid_argument for an unknown name or width.
TimedWork run_row_function(const KernelSet& kernels, const std::string& name, int64_t width, const Repeats& repeats);

}  // namespace tokenmill
