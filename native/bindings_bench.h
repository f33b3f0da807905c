// Adds the benchmarks' part to the Python module.
#pragma once
#include <nanobind/nanobind.h>

namespace tokenmill {

void bind_benchmarks(nanobind::module_& m);

}  // namespace tokenmill
