// What a step is given and what it gives back.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "decoder/sampler.h"

namespace tokenmill {

// One ragged batch: `tokens` of all sequences one after another, prefill chunks and single decode tokens alike.
struct StepInput {
  std::span<const int32_t> tokens;                 // [T]
  std::span<const int32_t> starts;                 // [S+1] offsets into tokens
  std::span<const int32_t> positions;              // [S] absolute position of each sequence's first token of this step
  std::span<const int32_t> page_table;             // [P] page numbers, sequences one after another
  std::span<const int32_t> page_starts;            // [S+1] offsets into page_table
  std::span<const int32_t> sample_rows;            // [R] rows of tokens whose logits are wanted
  std::span<const SamplerConfig* const> samplers;  // [R], or empty: logits only
  std::span<const TokenHistory> histories;         // [R], or empty; read where a sampler's penalties need it
  bool return_logits = false;

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  int64_t sequences() const { return static_cast<int64_t>(positions.size()); }
};

struct StepLimits {
  int32_t vocab = 0;
  int64_t context_length = 0;
  int32_t page_count = 0;
};

// Checks every index of a step before any is used: nothing that passes can read or write outside its array.
class StepChecker {
 public:
  explicit StepChecker(const StepLimits& limits);

  // Throws std::invalid_argument naming the entry at fault.
  void check(const StepInput& input);

 private:
  void check_sequence(const StepInput& input, int64_t sequence);
  void check_sampling(const StepInput& input) const;

  StepLimits limits_;
  std::vector<uint32_t> written_in_;  // per page: the last step that wrote to it
  uint32_t step_ = 0;
};

enum class Phase : uint8_t { matmul = 0, attention, other, sampling, count };
constexpr int kPhaseCount = static_cast<int>(Phase::count);
constexpr const char* kPhaseNames[kPhaseCount] = {"matmul", "attention", "other", "sampling"};

struct StepResult {
  std::vector<SampledToken> sampled;  // [R], or empty
  std::vector<uint8_t> nonfinite;     // [S]
  std::unique_ptr<float[]> logits;    // [R][vocab], or null
  double phase_seconds[kPhaseCount] = {};
};

}  // namespace tokenmill
