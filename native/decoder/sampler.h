// Draws a token from logits. Scalar code in a fixed order: the same logits, parameters, seed and position give the
// same token on every machine.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace tokenmill {

struct LogitBias {
  int32_t token;
  float bias;
};

// Fields as in vocabulary/generation.py, SamplingParams.
struct SamplerConfig {
  float temperature = 1.0F;
  int32_t top_k = 0;
  float top_p = 1.0F;
  float min_p = 0.0F;
  float repetition_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::vector<LogitBias> logit_bias;
  uint64_t seed = 0;
  int32_t logprobs = -1;

  bool needs_history() const {
    return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
  }
};

// Throws std::invalid_argument for a parameter out of range; the message names it.
void check_sampler(const SamplerConfig& config);

// Tokens seen so far: prompt first, then output.
struct TokenHistory {
  const int32_t* tokens = nullptr;
  int64_t count = 0;
  int64_t prompt_count = 0;
};

struct SampledToken {
  int32_t token = -1;  // -1: a logit was not finite
  float logprob = 0.0F;
  std::vector<std::pair<int32_t, float>> top;  // (token, logprob), largest first
};

// Uniform in [0, 1) from a counter: the draw of the token at absolute position `position` of a sequence with `seed`.
double uniform_at(uint64_t seed, uint64_t position);

// `logits` [vocab] is changed by penalties and biases. logprobs are those of the unmodified distribution.
SampledToken sample(float* logits, int32_t vocab, const SamplerConfig& config, const TokenHistory& history,
                    uint64_t position);

}  // namespace tokenmill
