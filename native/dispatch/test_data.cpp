#include "dispatch/test_data.h"

#include <bit>
#include <cstring>

namespace tokenmill {
namespace {

constexpr float kExtremeFloats[] = {
    0.0F,    -0.0F, 1e-45F, -1e-45F,         1.1754942e-38F, 1.17549435e-38F, 1e-37F,   3.7e-37F, 0.5F,
    -1.5F,   2.5F,  127.0F, -127.0F,         63.5F,          65504.0F,        65520.0F, -1e19F,   88.0F,
    -104.0F, 87.5F, 1e30F,  3.40282347e+38F, 6.1035156e-5F,  5.9604645e-8F,   2.98e-8F, -1.0F};
constexpr uint8_t kExtremeBytes[] = {0x00, 0xFF, 0x80, 0x7F, 0x88, 0x0F, 0xF0};
constexpr uint16_t kExtremeHalves[] = {0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00};

template <typename T, int64_t count>
T pick(TestRandom& random, const T (&values)[count]) {
  return values[random.below(count)];
}

// A finite fp16; plain ones lie in +-[2^-11, 2^-6), as the scales of real weights do.
uint16_t random_half(TestRandom& random, ValueKind kind) {
  const auto bits = static_cast<uint16_t>(random.next());
  if (kind == ValueKind::extreme) {
    return random.below(2) == 0 ? pick(random, kExtremeHalves) : static_cast<uint16_t>(bits & 0xFBFFU);
  }
  return static_cast<uint16_t>((bits & 0x83FFU) | (static_cast<uint16_t>(4 + random.below(5)) << 10));
}

void store_half(uint8_t* at, TestRandom& random, ValueKind kind) {
  const uint16_t half = random_half(random, kind);
  std::memcpy(at, &half, sizeof half);
}

void fill_block(TestRandom& random, ValueKind kind, WeightFormat format, uint8_t* block) {
  const WeightFormatInfo& info = format_info(format);
  if (format == WeightFormat::f32) {
    const float value = random_float(random, kind);
    std::memcpy(block, &value, sizeof value);
    return;
  }
  if (format == WeightFormat::bf16) {
    const uint32_t bits = std::bit_cast<uint32_t>(random_float(random, kind));
    const auto upper = static_cast<uint16_t>(bits >> 16);
    std::memcpy(block, &upper, sizeof upper);
    return;
  }
  const bool same_bytes = kind == ValueKind::extreme && random.below(2) == 0;
  for (uint32_t i = 0; i < info.block_bytes; ++i) {
    block[i] = same_bytes ? pick(random, kExtremeBytes) : static_cast<uint8_t>(random.next());
  }
  store_half(format == WeightFormat::q6_k ? block + 208 : block, random, kind);
  if (info.has_min) {
    store_half(block + 2, random, kind);
  }
}

}  // namespace

uint64_t TestRandom::next() {
  state_ += 0x9E3779B97F4A7C15U;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

float TestRandom::unit() { return static_cast<float>(static_cast<int64_t>(next() >> 40)) * 0x1p-23F - 1.0F; }

float random_float(TestRandom& random, ValueKind kind) {
  const float plain = 4.0F * random.unit();
  if (kind == ValueKind::plain) {
    return plain;
  }
  switch (random.below(3)) {
    case 0:
      return pick(random, kExtremeFloats);
    case 1:  // ties and full-scale integers
      return static_cast<float>(random.below(509) - 254) * 0.5F;
    default:
      return plain;
  }
}

std::vector<float> random_floats(TestRandom& random, ValueKind kind, int64_t count) {
  std::vector<float> values(static_cast<uint64_t>(count));
  for (float& value : values) {
    value = random_float(random, kind);
  }
  return values;
}

std::vector<uint8_t> random_weights(TestRandom& random, ValueKind kind, WeightFormat format, int64_t rows, int64_t k) {
  const WeightFormatInfo& info = format_info(format);
  const uint64_t bytes = static_cast<uint64_t>(rows) * row_bytes(format, static_cast<uint64_t>(k));
  std::vector<uint8_t> weights(bytes);
  for (uint64_t at = 0; at < bytes; at += info.block_bytes) {
    fill_block(random, kind, format, weights.data() + at);
  }
  return weights;
}

}  // namespace tokenmill
