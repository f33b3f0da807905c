// How a comparison of kernel sets says where they differ.
#pragma once
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace tokenmill {

// Stands in outputs before a call, so that a value that is not written, or written outside, is seen.
constexpr float kUntouched = -12345.678F;

constexpr uint64_t unsigned_size(int64_t count) { return static_cast<uint64_t>(count); }

inline uint32_t comparable(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC00000U : bits;  // one NaN stands for all
}
template <std::integral T>
uint32_t comparable(T value) {
  return static_cast<uint32_t>(value);
}

// Empty when all elements are equal, else `what` and the first difference.
template <typename T>
std::string difference(const std::string& what, const std::vector<T>& got, const std::vector<T>& want) {
  for (uint64_t i = 0; i < want.size(); ++i) {
    if (comparable(got[i]) != comparable(want[i])) {
      char text[120];
      std::snprintf(text, sizeof text, ": element %llu is %.9g, the reference gives %.9g",
                    static_cast<unsigned long long>(i), static_cast<double>(got[i]), static_cast<double>(want[i]));
      return what + text;
    }
  }
  return "";
}

// The first result that is not empty.
inline std::string first_of(std::initializer_list<std::string> results) {
  for (const std::string& result : results) {
    if (!result.empty()) {
      return result;
    }
  }
  return "";
}

// "rope (heads 3, head_dim 64)"
inline std::string describe(const std::string& function, std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  std::string text = function + " (";
  for (const auto& [name, size] : sizes) {
    text += (text.back() == '(' ? "" : ", ") + std::string(name) + " " + std::to_string(size);
  }
  return text + ")";
}

}  // namespace tokenmill
