#include "threads/fp_environment.h"

namespace tokenmill {
namespace {

#if defined(__x86_64__)
// MXCSR: bit 15 flush-to-zero, bits 14-13 rounding, bits 12-7 exception masks, bit 6 denormals-are-zero, 5-0 flags.
constexpr uint32_t kDefault = 0x1F80;
constexpr uint32_t kNumericBits = 0xE040;

uint64_t read_control() {
  uint32_t value = 0;
  asm volatile("stmxcsr %0" : "=m"(value));
  return value;
}
void write_control(uint64_t value) {
  const uint32_t word = static_cast<uint32_t>(value);
  asm volatile("ldmxcsr %0" : : "m"(word));
}
#elif defined(__aarch64__)
// FPCR: bits 26 (alternative half precision), 25 (default NaN), 24 (flush to zero), 23-22 rounding, 19 (flush fp16),
// 2 to 0 (NEP, AH, FIZ of later versions).
constexpr uint64_t kDefault = 0;
constexpr uint64_t kNumericBits = 0x07C80007;

uint64_t read_control() {
  uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void write_control(uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
#error "the floating-point control register of this processor is not known"
#endif

}  // namespace

bool fp_environment_is_default() { return (read_control() & kNumericBits) == (kDefault & kNumericBits); }

ScopedFpEnvironment::ScopedFpEnvironment() : saved_(read_control()) { write_control(kDefault); }

ScopedFpEnvironment::~ScopedFpEnvironment() { write_control(saved_); }

}  // namespace tokenmill
