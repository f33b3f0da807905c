#include "decoder/sampler.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "decoder/scalar_math.h"

namespace tokenmill {
namespace {

struct Candidate {
  float logit;
  int32_t token;
  double weight;  // exp((logit - max) / temperature)
};

// A total order, so that every selection below is the same set in the same order everywhere.
bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

bool is_finite(float x) { return (std::bit_cast<uint32_t>(x) & 0x7F800000U) != 0x7F800000U; }

// Index of the largest logit (lowest index on ties), or -1 if one is not finite.
int32_t finite_argmax(const float* logits, int32_t vocab) {
  int32_t best = 0;
  bool finite = true;
  for (int32_t i = 0; i < vocab; ++i) {
    finite = finite && is_finite(logits[i]);
    if (logits[i] > logits[best]) best = i;
  }
  return finite ? best : -1;
}

// Sum of exp(logit - max) in 16 lanes by index, folded 8-4-2-1 like every sum over a vector (docs/numerics.md).
double sum_of_exponentials(const float* logits, int32_t vocab, float max) {
  double lane[16] = {};
  int32_t i = 0;
  for (; i + 16 <= vocab; i += 16) {
    for (int j = 0; j < 16; ++j) lane[j] += exp_fixed(static_cast<double>(logits[i + j]) - max);
  }
  for (int j = 0; i < vocab; ++i, ++j) lane[j] += exp_fixed(static_cast<double>(logits[i]) - max);
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
  }
  return lane[0];
}

// Scratch that one thread reuses from token to token: a vocabulary has 150,000 entries.
struct Scratch {
  std::vector<Candidate> candidates;
  std::vector<int32_t> prompt_count;
  std::vector<int32_t> output_count;
};

Scratch& scratch() {
  thread_local Scratch instance;
  return instance;
}

void apply_penalties(float* logits, int32_t vocab, const SamplerConfig& config, const TokenHistory& history) {
  Scratch& s = scratch();
  s.prompt_count.resize(vocab);  // all zero between calls
  s.output_count.resize(vocab);
  for (int64_t i = 0; i < history.count; ++i) {
    ++(i < history.prompt_count ? s.prompt_count : s.output_count)[history.tokens[i]];
  }
  for (int64_t i = 0; i < history.count; ++i) {
    const int32_t token = history.tokens[i];
    const int32_t outputs = s.output_count[token];
    if (s.prompt_count[token] + outputs == 0) continue;  // an earlier occurrence has been dealt with
    float logit = logits[token];
    logit = logit > 0.0F ? logit / config.repetition_penalty : logit * config.repetition_penalty;
    if (outputs > 0) {
      logit -= static_cast<float>(outputs) * config.frequency_penalty;
      logit -= config.presence_penalty;
    }
    logits[token] = logit;
    s.prompt_count[token] = 0;
    s.output_count[token] = 0;
  }
}

void weigh(std::vector<Candidate>& candidates, float max, float temperature) {
  for (Candidate& c : candidates) {
    c.weight = exp_fixed((static_cast<double>(c.logit) - max) / static_cast<double>(temperature));
  }
}

double total_weight(const std::vector<Candidate>& candidates) {
  double sum = 0.0;
  for (const Candidate& c : candidates) sum += c.weight;
  return sum;
}

// Keeps the shortest prefix of the ranking whose weight reaches top_p of the whole. Only as much as needed is sorted.
void keep_nucleus(std::vector<Candidate>& candidates, float top_p) {
  const double wanted = static_cast<double>(top_p) * total_weight(candidates);
  size_t ranked = 0;
  double reached = 0.0;
  for (size_t step = 256; ranked < candidates.size(); step *= 4) {
    const size_t end = std::min(candidates.size(), ranked + step);
    std::partial_sort(candidates.begin() + static_cast<std::ptrdiff_t>(ranked),
                      candidates.begin() + static_cast<std::ptrdiff_t>(end), candidates.end(), ranks_before);
    for (; ranked < end; ++ranked) {
      reached += candidates[ranked].weight;
      if (reached >= wanted) {
        candidates.resize(ranked + 1);
        return;
      }
    }
  }
}

int32_t draw(const std::vector<Candidate>& candidates, double uniform) {
  const double target = uniform * total_weight(candidates);
  double reached = 0.0;
  for (const Candidate& c : candidates) {
    reached += c.weight;
    if (reached > target) return c.token;
  }
  return candidates.back().token;  // rounding left the sum just short of the target
}

int32_t draw_token(const float* logits, int32_t vocab, float max, const SamplerConfig& config, double uniform) {
  std::vector<Candidate>& candidates = scratch().candidates;
  candidates.resize(vocab);
  for (int32_t i = 0; i < vocab; ++i) candidates[i] = {logits[i], i, 0.0};
  if (config.top_k > 0 && config.top_k < vocab) {
    std::partial_sort(candidates.begin(), candidates.begin() + config.top_k, candidates.end(), ranks_before);
    candidates.resize(config.top_k);
  }
  weigh(candidates, max, config.temperature);
  if (config.top_p < 1.0F) keep_nucleus(candidates, config.top_p);
  if (config.min_p > 0.0F) {  // relative to the largest weight, which is exp(0) = 1
    std::erase_if(candidates, [&](const Candidate& c) { return c.weight < static_cast<double>(config.min_p); });
  }
  return draw(candidates, uniform);
}

// The `count` largest, largest first.
std::vector<std::pair<int32_t, float>> largest(const float* logits, int32_t vocab, int32_t count, double log_sum) {
  std::vector<Candidate>& candidates = scratch().candidates;
  candidates.resize(vocab);
  for (int32_t i = 0; i < vocab; ++i) candidates[i] = {logits[i], i, 0.0};
  const int32_t kept = std::min(count, vocab);
  std::partial_sort(candidates.begin(), candidates.begin() + kept, candidates.end(), ranks_before);
  std::vector<std::pair<int32_t, float>> result;
  result.reserve(kept);
  for (int32_t i = 0; i < kept; ++i) {
    result.emplace_back(candidates[i].token, static_cast<float>(static_cast<double>(candidates[i].logit) - log_sum));
  }
  return result;
}

}  // namespace

SampledToken sample(float* logits, int32_t vocab, const SamplerConfig& config, const TokenHistory& history,
                    uint64_t position) {
  SampledToken result;
  int32_t best = finite_argmax(logits, vocab);
  if (best < 0) return result;

  const bool wants_logprobs = config.logprobs >= 0;
  double log_sum = 0.0;
  if (wants_logprobs) {
    log_sum = static_cast<double>(logits[best]) + log_fixed(sum_of_exponentials(logits, vocab, logits[best]));
    if (config.logprobs > 0) result.top = largest(logits, vocab, config.logprobs, log_sum);
  }
  const bool changed = config.needs_history() || !config.logit_bias.empty();
  // The model's own logits of the tokens that may be drawn are gone once penalties are applied, so keep a copy.
  std::vector<float> unmodified;
  if (wants_logprobs && changed) unmodified.assign(logits, logits + vocab);
  if (config.needs_history()) apply_penalties(logits, vocab, config, history);
  for (const LogitBias& bias : config.logit_bias) logits[bias.token] += bias.bias;
  if (changed) {
    best = finite_argmax(logits, vocab);
    if (best < 0) return SampledToken{};
  }
  result.token = config.temperature > 0.0F
                     ? draw_token(logits, vocab, logits[best], config, uniform_at(config.seed, position))
                     : best;
  if (wants_logprobs) {
    const float logit = changed ? unmodified[result.token] : logits[result.token];
    result.logprob = static_cast<float>(static_cast<double>(logit) - log_sum);
  }
  return result;
}

}  // namespace tokenmill
