// What native code returns instead of throwing: plain data, no std containers.
#pragma once
#include <cstdint>

namespace tokenmill {

enum class StatusCode : uint8_t {
  ok = 0,
  invalid_argument,  // a size, index or enum value outside its range
  unsupported,       // well formed, but no code for it here
  bad_data,          // contents that cannot be right: NaN scale, short read
  out_of_memory,
  io_error,
};

// `message` points at a string literal or at storage that outlives the status.
struct Status {
  StatusCode code = StatusCode::ok;
  const char* message = "";

  constexpr bool ok() const { return code == StatusCode::ok; }
};

constexpr Status kOk{};

}  // namespace tokenmill
