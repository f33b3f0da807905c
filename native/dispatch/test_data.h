// Seeded data for comparing kernel sets: the same numbers on every machine.
#pragma once
#include <cstdint>
#include <new>
#include <vector>

#include "contract/weight_formats.h"

namespace tokenmill {

// How the values are drawn. `extreme` mixes zeros of both signs, denormals, the largest finite values, ties of the
// rounding and full-scale integers; it gives overflow to infinity and NaN in places, which every set must give alike.
enum class ValueKind : uint8_t { plain, extreme };

// splitmix64.
class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : state_(seed) {}
  uint64_t next();
  // Uniform in 0 .. bound - 1; bound > 0.
  int64_t below(int64_t bound) { return static_cast<int64_t>(next() % static_cast<uint64_t>(bound)); }
  // Uniform in [-1, 1).
  float unit();

 private:
  uint64_t state_;
};

// Memory of exactly `bytes` bytes at a multiple of 64, as packed weights and attention scratch have.
class AlignedBytes {
 public:
  explicit AlignedBytes(uint64_t bytes)
      : data_(static_cast<uint8_t*>(::operator new(bytes, std::align_val_t{kAlignment}))) {}
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  ~AlignedBytes() { ::operator delete(data_, std::align_val_t{kAlignment}); }
  uint8_t* data() const { return data_; }

 private:
  static constexpr uint64_t kAlignment = 64;
  uint8_t* data_;
};

// One finite float.
float random_float(TestRandom& random, ValueKind kind);
std::vector<float> random_floats(TestRandom& random, ValueKind kind, int64_t count);

// `rows` rows of file blocks of k weights, with finite scales.
std::vector<uint8_t> random_weights(TestRandom& random, ValueKind kind, WeightFormat format, int64_t rows, int64_t k);

}  // namespace tokenmill
