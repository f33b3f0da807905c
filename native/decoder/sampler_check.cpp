#include <cmath>
#include <stdexcept>

#include "decoder/sampler.h"

namespace tokenmill {
namespace {

void require(bool valid, const char* rule) {
  if (!valid) throw std::invalid_argument(rule);
}

}  // namespace

void check_sampler(const SamplerConfig& config) {
  require(std::isfinite(config.temperature) && config.temperature >= 0.0F, "temperature must be at least 0");
  require(config.top_k >= 0, "top_k must be at least 0");
  require(config.top_p >= 0.0F && config.top_p <= 1.0F, "top_p must be between 0 and 1");
  require(config.min_p >= 0.0F && config.min_p <= 1.0F, "min_p must be between 0 and 1");
  require(std::isfinite(config.repetition_penalty) && config.repetition_penalty > 0.0F,
          "repetition_penalty must be above 0");
  require(std::isfinite(config.presence_penalty), "presence_penalty must be finite");
  require(std::isfinite(config.frequency_penalty), "frequency_penalty must be finite");
  require(config.logprobs >= -1, "logprobs must be at least -1");
  for (const LogitBias& bias : config.logit_bias) require(std::isfinite(bias.bias), "logit_bias must be finite");
}

}  // namespace tokenmill
