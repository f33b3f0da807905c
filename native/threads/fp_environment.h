// The floating-point environment that the numerics contract needs: round to nearest even, denormals kept, no traps.
#pragma once
#include <cstdint>

namespace tokenmill {

// Whether this thread rounds to nearest even and keeps denormals.
bool fp_environment_is_default();

// Sets the contract's environment for this thread and restores the caller's own when it ends. A library built with
// -ffast-math may have switched on flush-to-zero for every thread of the process, so threads cannot rely on the
// default.
class ScopedFpEnvironment {
 public:
  ScopedFpEnvironment();
  ~ScopedFpEnvironment();
  ScopedFpEnvironment(const ScopedFpEnvironment&) = delete;
  ScopedFpEnvironment& operator=(const ScopedFpEnvironment&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace tokenmill
