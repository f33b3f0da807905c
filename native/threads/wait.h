// Waiting for an atomic to change: polling first, then sleep.
#pragma once
#include <atomic>
#include <cstdint>

namespace tokenmill {

// About 20 to 60 microseconds of polling: longer than threads of one phase usually lie apart, far shorter than a time
// slice, so a thread that waits for one without a core soon gives its own core up.
constexpr int kPhaseSpins = 1000;
// Between steps the caller plans and samples; workers that poll over that gap save a wake-up of about 50 microseconds.
constexpr int kIdleSpins = 4000;

inline void relax_core() {
#if defined(__x86_64__)
  asm volatile("pause" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Whether `value` came to differ from `old` while polled. Acquire: what was written before the change is seen after it.
inline bool poll_for_change(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return true;
    relax_core();
  }
  return false;
}

// Returns once `value` differs from `old`.
inline void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  if (!poll_for_change(value, old, spins)) value.wait(old, std::memory_order_acquire);  // a futex
}

}  // namespace tokenmill
