// The start-up self-test: is what this set computes here what the reference computes here?
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "contract/kernel_set.h"

namespace tokenmill {

// Compares every function and format of `set` with the reference set on seeded plain and extreme data, in well under
// half a second. Returns one sentence per function that differs; empty when all bits are equal.
//
// The environment variable TOKENMILL_TEST_BREAK_KERNEL=<function>, e.g. matmul_q4_0, replaces that function by one that
// does nothing before the comparison. It exists so that tests can show that a wrong kernel is caught and stops the
// start.
std::vector<std::string> self_test(const KernelSet& set);

// Functions that the self-test covers, by the names that TOKENMILL_TEST_BREAK_KERNEL takes.
std::vector<std::string> self_test_functions();

// Replaces one function by one that does nothing. Returns false when there is no such name.
bool break_function(KernelSet& set, std::string_view name);

}  // namespace tokenmill
