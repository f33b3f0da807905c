// The sampler against its definition: known answers of the generator, a naive sampler written from the definitions,
// and the limits (one candidate, ties, non-finite logits, empty history).
#include "decoder/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "decoder/scalar_math.h"

namespace {

using tokenmill::SampledToken;
using tokenmill::SamplerConfig;
using tokenmill::TokenHistory;

int failures = 0;

void expect(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "sampler: %s\n", what.c_str());
  ++failures;
}

std::vector<float> peaked_logits(int vocab, uint64_t seed) {
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (int i = 0; i < vocab; ++i) {
    const double u = tokenmill::uniform_at(seed, static_cast<uint64_t>(i));
    logits[static_cast<size_t>(i)] = static_cast<float>(12.0 * u * u * u - 4.0);
  }
  return logits;
}

// The definitions, in long double and with full sorts.
int naive_draw(const std::vector<float>& logits, const SamplerConfig& config, double uniform) {
  std::vector<int> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  const auto logit = [&](int token) { return logits[static_cast<size_t>(token)]; };
  const bool cut = config.top_k > 0 && static_cast<size_t>(config.top_k) < order.size();
  const bool ranked = cut || config.top_p < 1.0F;  // else the draw walks the vocabulary in its own order
  const float max = *std::max_element(logits.begin(), logits.end());
  if (ranked) std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logit(a) > logit(b); });
  if (cut) order.resize(static_cast<size_t>(config.top_k));
  const auto weight = [&](int token) {
    return std::exp((static_cast<long double>(logit(token)) - max) / config.temperature);
  };
  long double total = 0;
  for (const int token : order) total += weight(token);
  if (config.top_p < 1.0F) {
    long double reached = 0;
    size_t kept = 0;
    while (kept < order.size() && reached < config.top_p * total) reached += weight(order[kept++]);
    order.resize(kept);
  }
  std::erase_if(order, [&](int token) { return weight(token) < config.min_p; });
  total = 0;
  for (const int token : order) total += weight(token);
  long double reached = 0;
  for (const int token : order) {
    reached += weight(token);
    if (reached > uniform * total) return token;
  }
  return order.back();
}

void test_generator() {
  // Known answer of Philox4x32-10 for counter 0 and key 0, from the authors' test vectors: 6627e8d5 e169c58d …
  const double expected = static_cast<double>(0x6627E8D5E169C58DULL >> 11) * 0x1p-53;
  expect(tokenmill::uniform_at(0, 0) == expected, "the generator misses its known answer");
  double sum = 0;
  for (uint64_t i = 0; i < 100000; ++i) sum += tokenmill::uniform_at(7, i);
  expect(std::fabs(sum / 100000 - 0.5) < 0.005, "draws are not uniform");
  expect(tokenmill::uniform_at(1, 5) != tokenmill::uniform_at(2, 5), "the seed does not matter");
}

void test_math() {
  for (int i = -1889; i < 1889; ++i) {
    const double x = 0.37 * i;
    const long double right = std::exp(static_cast<long double>(x));
    expect(std::fabs((tokenmill::exp_fixed(x) - right) / right) < 1e-15L, "exp_fixed(" + std::to_string(x) + ")");
  }
  for (int i = -2100; i < 2100; ++i) {
    const double x = tokenmill::exp_fixed(0.31 * i);
    const long double right = std::log(static_cast<long double>(x));
    expect(std::fabs(tokenmill::log_fixed(x) - right) < 1e-15L * std::fmax(1.0L, std::fabs(right)), "log_fixed");
  }
}

void test_against_definition() {
  int index = 0;
  for (const float temperature : {0.3F, 1.0F, 1.7F}) {
    for (const int top_k : {0, 1, 40, 5000}) {
      for (const float top_p : {1.0F, 0.9F, 0.1F}) {
        for (const float min_p : {0.0F, 0.05F}) {
          const std::vector<float> logits = peaked_logits(3000, static_cast<uint64_t>(++index));
          SamplerConfig config;
          config.temperature = temperature;
          config.top_k = top_k;
          config.top_p = top_p;
          config.min_p = min_p;
          config.seed = 99;
          for (uint64_t position = 0; position < 20; ++position) {
            std::vector<float> scratch = logits;
            const int token = tokenmill::sample(scratch.data(), 3000, config, {}, position).token;
            const int wanted = naive_draw(logits, config, tokenmill::uniform_at(99, position));
            expect(token == wanted, "case " + std::to_string(index) + ": drew " + std::to_string(token) + ", not " +
                                        std::to_string(wanted));
          }
        }
      }
    }
  }
}

void test_logprobs() {
  const std::vector<float> logits = peaked_logits(1000, 3);
  long double total = 0;
  for (const float x : logits) total += std::exp(static_cast<long double>(x));
  SamplerConfig config;
  config.temperature = 0.0F;
  config.logprobs = 5;
  config.logit_bias = {{17, 100.0F}};
  std::vector<float> scratch = logits;
  const SampledToken result = tokenmill::sample(scratch.data(), 1000, config, {}, 0);
  expect(result.token == 17, "a bias of 100 does not win");
  expect(std::fabs(result.logprob - (logits[17] - std::log(total))) < 1e-5L, "logprob is not the model's own");
  expect(result.top.size() == 5, "five were asked for");
  std::vector<float> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  for (size_t i = 0; i < result.top.size(); ++i) {
    expect(std::fabs(result.top[i].second - (sorted[i] - std::log(total))) < 1e-5L, "top logprob " + std::to_string(i));
  }
}

void test_penalties() {
  const std::vector<int32_t> history = {2, 2, 0, 2, 1};  // the first two are the prompt
  const TokenHistory seen{history.data(), 5, 2};
  SamplerConfig config;
  config.temperature = 0.0F;
  config.repetition_penalty = 2.0F;
  config.presence_penalty = 0.5F;
  config.frequency_penalty = 0.25F;
  std::vector<float> logits = {4.0F, -1.0F, 8.0F, 2.5F};
  tokenmill::sample(logits.data(), 4, config, seen, 0);
  expect(logits[0] == 4.0F / 2 - 0.25F - 0.5F, "once in the output");
  expect(logits[1] == -1.0F * 2 - 0.25F - 0.5F, "a negative logit");
  expect(logits[2] == 8.0F / 2 - 0.25F - 0.5F, "twice in the prompt, once in the output");
  expect(logits[3] == 2.5F, "never seen");
  std::vector<float> again = {4.0F, -1.0F, 8.0F, 2.5F};
  tokenmill::sample(again.data(), 4, config, seen, 0);
  expect(again == logits, "counts are left over from the call before");
}

void test_limits() {
  SamplerConfig config;
  config.temperature = 0.0F;
  std::vector<float> tie = {1.0F, 3.0F, 3.0F};
  expect(tokenmill::sample(tie.data(), 3, config, {}, 0).token == 1, "a tie goes to the lower token");
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits = {1.0F, bad, 3.0F};
    expect(tokenmill::sample(logits.data(), 3, config, {}, 0).token == -1, "a logit that is not finite");
  }
  config.temperature = 1e-6F;
  std::vector<float> cold = {1.0F, 3.0F, 2.0F};
  expect(tokenmill::sample(cold.data(), 3, config, {}, 0).token == 1, "almost greedy");
  config.temperature = 1.0F;
  config.min_p = 1.0F;
  expect(tokenmill::sample(cold.data(), 3, config, {}, 0).token == 1, "min_p 1 leaves the largest");
}

}  // namespace

int main() {
  test_generator();
  test_math();
  test_against_definition();
  test_logprobs();
  test_penalties();
  test_limits();
  if (failures == 0) std::puts("sampler: all equal to the definition");
  return failures == 0 ? 0 : 1;
}
