// The few lines that a native test needs: count failures, say each one, return the exit code.
#pragma once
#include <cstdio>
#include <string>

namespace tokenmill::test {

inline int failures = 0;
constexpr int kMostShown = 20;

inline void fail(const std::string& what) {
  ++failures;
  if (failures <= kMostShown) {
    std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  }
}

inline void expect(bool condition, const std::string& what) {
  if (!condition) {
    fail(what);
  }
}

// For results of dispatch/compare_sets.h: empty when nothing differs.
inline void expect_same(const char* set, const std::string& difference) {
  if (!difference.empty()) {
    fail(std::string(set) + ": " + difference);
  }
}

inline int finish() {
  if (failures != 0) {
    std::fprintf(stderr, "%d checks failed\n", failures);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace tokenmill::test
