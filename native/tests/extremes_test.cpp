// Integers at both ends of their ranges, where pair sums saturate and accumulators are largest: activations of +-127
// against weights of the lowest and highest value, against sums that are computed here from the format's definition.
// Also the largest shapes of real models, and more threads than rows.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "decoder/single_kernels.h"
#include "dispatch/kernel_registry.h"
#include "dispatch/test_data.h"
#include "sets_to_test.h"

namespace {

using tokenmill::KernelSet;
using tokenmill::WeightFormat;

constexpr float kLargest = 127.0F;       // amax of every group: the scale is 1 and q is +-127
constexpr uint16_t kHalfOne = 0x3C00;    // fp16: every d, m and dmin
constexpr int64_t kFeedForward = 18944;  // the widest rows of a 7B model
constexpr int64_t kWidest = 28672;       // and of a 70B model
constexpr int64_t kVocabulary = 151936;

// All weights of a matrix alike: every byte of quants is `quants`, every byte of sub-scales `scales`. By the format's
// definition the weight is sw * q + o, in steps of 32 or 16 elements.
struct Extreme {
  WeightFormat format;
  uint8_t quants;
  uint8_t scales;
  float q;
  float sw;
  float o;
  int step;
};

constexpr Extreme kExtremes[] = {
    {WeightFormat::q4_0, 0x00, 0, -8, 1, 0, 32},       {WeightFormat::q4_0, 0xFF, 0, 7, 1, 0, 32},
    {WeightFormat::q4_1, 0x00, 0, 0, 1, 1, 32},        {WeightFormat::q4_1, 0xFF, 0, 15, 1, 1, 32},
    {WeightFormat::q5_0, 0x00, 0, -16, 1, 0, 32},      {WeightFormat::q5_0, 0xFF, 0, 15, 1, 0, 32},
    {WeightFormat::q5_1, 0x00, 0, 0, 1, 1, 32},        {WeightFormat::q5_1, 0xFF, 0, 31, 1, 1, 32},
    {WeightFormat::q8_0, 0x80, 0, -128, 1, 0, 32},     {WeightFormat::q8_0, 0x81, 0, -127, 1, 0, 32},
    {WeightFormat::q8_0, 0x7F, 0, 127, 1, 0, 32},      {WeightFormat::iq4_nl, 0x00, 0, -127, 1, 0, 32},
    {WeightFormat::iq4_nl, 0xFF, 0, 113, 1, 0, 32},    {WeightFormat::q4_k, 0x00, 0xFF, 0, 63, -63, 32},
    {WeightFormat::q4_k, 0xFF, 0xFF, 15, 63, -63, 32}, {WeightFormat::q5_k, 0x00, 0xFF, 0, 63, -63, 32},
    {WeightFormat::q5_k, 0xFF, 0xFF, 31, 63, -63, 32}, {WeightFormat::q6_k, 0x00, 0x80, -32, -128, 0, 16},
    {WeightFormat::q6_k, 0x00, 0x7F, -32, 127, 0, 16}, {WeightFormat::q6_k, 0xFF, 0x80, 31, -128, 0, 16},
};

std::vector<uint8_t> uniform_matrix(const Extreme& extreme, int64_t rows, int64_t k) {
  const tokenmill::WeightFormatInfo& info = tokenmill::format_info(extreme.format);
  std::vector<uint8_t> block(info.block_bytes, extreme.quants);
  const bool last = extreme.format == WeightFormat::q6_k;  // its scales stand behind the quants
  std::memcpy(block.data() + (last ? 208 : 0), &kHalfOne, sizeof kHalfOne);
  if (info.has_min) {
    std::memcpy(block.data() + 2, &kHalfOne, sizeof kHalfOne);
  }
  if (info.block_elements == tokenmill::kSuperBlockSize) {
    std::memset(block.data() + (last ? 192 : 4), extreme.scales, last ? 16 : 12);
  }
  std::vector<uint8_t> matrix;
  matrix.reserve(static_cast<uint64_t>(rows) * tokenmill::row_bytes(extreme.format, static_cast<uint64_t>(k)));
  for (int64_t i = 0; i < rows * k / info.block_elements; ++i) {
    matrix.insert(matrix.end(), block.begin(), block.end());
  }
  return matrix;
}

// Sign of group g in token t: all positive, all negative, changing with the group.
float sign(int64_t token, int64_t group) {
  const int64_t kind = token % 3;
  return kind == 0 || (kind == 2 && group % 2 == 0) ? 1.0F : -1.0F;
}

float expected(const Extreme& extreme, int64_t k, int64_t token) {
  float sum = 0.0F;
  for (int64_t group = 0; group < k / tokenmill::kGroupSize; ++group) {
    const float a = kLargest * sign(token, group);
    for (int done = 0; done < tokenmill::kGroupSize; done += extreme.step) {
      sum = std::fma(static_cast<float>(extreme.step) * extreme.q * a, extreme.sw, sum);
    }
    if (extreme.o != 0.0F) {
      sum = std::fma(extreme.o, static_cast<float>(tokenmill::kGroupSize) * a, sum);
    }
  }
  return sum;
}

void check(const KernelSet& set, const Extreme& extreme, int64_t rows, int64_t k, int64_t tokens, int threads) {
  if (k % tokenmill::format_info(extreme.format).block_elements != 0) {
    return;
  }
  std::vector<float> x;
  for (int64_t token = 0; token < tokens; ++token) {
    for (int64_t i = 0; i < k; ++i) {
      x.push_back(kLargest * sign(token, i / tokenmill::kGroupSize));
    }
  }
  std::vector<float> y(static_cast<uint64_t>(rows * tokens));
  multiply_once(set, extreme.format, uniform_matrix(extreme, rows, k), rows, {x.data(), tokens, k}, threads, y.data());
  for (int64_t token = 0; token < tokens; ++token) {
    const float want = expected(extreme, k, token);
    for (int64_t row = 0; row < rows; ++row) {
      const float got = y[static_cast<uint64_t>(token * rows + row)];
      if (got != want) {
        tokenmill::test::fail(std::string(set.name) + ", " + tokenmill::format_info(extreme.format).name + ", rows " +
                              std::to_string(rows) + ", k " + std::to_string(k) + ", token " + std::to_string(token) +
                              " of " + std::to_string(tokens) + ": " + std::to_string(got) + ", not " +
                              std::to_string(want));
        return;
      }
    }
  }
}

// Weights of both ends mixed, signs of single activations at random: against the reference.
void check_mixed(const KernelSet& set, WeightFormat format, int64_t k) {
  constexpr int64_t kRows = 33;
  constexpr int64_t kTokens = 7;
  if (k % tokenmill::format_info(format).block_elements != 0) {
    return;
  }
  tokenmill::TestRandom random(static_cast<uint64_t>(k));
  std::vector<uint8_t> matrix = random_weights(random, tokenmill::ValueKind::plain, format, kRows, k);
  const uint32_t block_bytes = tokenmill::format_info(format).block_bytes;
  const bool last = format == WeightFormat::q6_k;
  const uint32_t begin = last ? 0 : tokenmill::format_info(format).has_min ? 4 : 2;
  const uint32_t end = last ? 208 : block_bytes;
  constexpr uint8_t kEnds[] = {0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0, 0x81, 0x88};
  for (uint64_t i = 0; i < matrix.size(); ++i) {
    if (i % block_bytes >= begin && i % block_bytes < end) {
      matrix[i] = kEnds[random.below(8)];
    }
  }
  std::vector<float> x(static_cast<uint64_t>(kTokens * k));
  for (float& value : x) {
    value = random.below(2) == 0 ? kLargest : -kLargest;
  }
  std::vector<float> got(static_cast<uint64_t>(kRows * kTokens));
  std::vector<float> want(got.size());
  multiply_once(set, format, matrix, kRows, {x.data(), kTokens, k}, 1, got.data());
  multiply_once(tokenmill::reference_kernel_set(), format, matrix, kRows, {x.data(), kTokens, k}, 1, want.data());
  tokenmill::test::expect(
      std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0,
      std::string(set.name) + ", " + tokenmill::format_info(format).name + ", mixed extremes, k " + std::to_string(k));
}

void check_set(const KernelSet& set, bool fast) {
  for (const Extreme& extreme : kExtremes) {
    for (const int64_t tokens : {1, 2, 3, 6, 7, 16}) {
      check(set, extreme, 17, 256, tokens, 1);
      check(set, extreme, 17, 1056, tokens, 2);
    }
    for (const int64_t k : {kFeedForward, kWidest}) {
      check(set, extreme, fast ? 17 : 2, k, 7, 2);
    }
    for (const int64_t rows : {1, 3, 40}) {
      check(set, extreme, rows, 512, 5, 48);  // more threads than panels, rows or tokens
    }
  }
  if (fast) {
    for (int format = 0; format < tokenmill::kWeightFormatCount; ++format) {
      for (const int64_t k : {int64_t{256}, int64_t{1056}, kFeedForward, kWidest}) {
        check_mixed(set, static_cast<WeightFormat>(format), k);
      }
    }
    check(set, kExtremes[0], kVocabulary, 32, 3, 2);    // Q4_0
    check(set, kExtremes[8], kVocabulary, 32, 1, 2);    // Q8_0
    check(set, kExtremes[17], kVocabulary, 256, 1, 2);  // Q6_K
  }
}

}  // namespace

int main() {
  check_set(tokenmill::reference_kernel_set(), false);
  for (const KernelSet* set : tokenmill::test::sets_to_test()) {
    check_set(*set, true);
  }
  return tokenmill::test::finish();
}
