#include <algorithm>
#include <stdexcept>

#include "contract/kernel_set.h"
#include "decoder/step.h"

namespace tokenmill {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument("step: " + what); }

// Offsets that begin at 0, never fall and end at `end`.
void check_offsets(std::span<const int32_t> offsets, size_t count, size_t end, const char* name) {
  if (offsets.size() != count + 1) fail(std::string(name) + " must have one entry more than positions");
  if (offsets.front() != 0 || static_cast<size_t>(offsets.back()) != end) {
    fail(std::string(name) + " must begin at 0 and end at " + std::to_string(end));
  }
  for (size_t i = 0; i < count; ++i) {
    if (offsets[i] > offsets[i + 1]) fail(std::string(name) + " falls after entry " + std::to_string(i));
  }
}

// `list` and `entry` say where the token stands; the text is only made when it is wrong.
void check_token(int32_t token, int32_t vocab, const char* list, size_t entry) {
  if (token < 0 || token >= vocab) {
    fail(std::string(list) + "[" + std::to_string(entry) + "] has token " + std::to_string(token) +
         ", outside the vocabulary of " + std::to_string(vocab));
  }
}

}  // namespace

StepChecker::StepChecker(const StepLimits& limits)
    : limits_(limits), written_in_(static_cast<size_t>(limits.page_count), 0) {}

void StepChecker::check(const StepInput& input) {
  const size_t sequences = input.positions.size();
  if (input.tokens.empty() || sequences == 0) fail("the batch is empty");
  constexpr size_t kMaxRows = size_t{1} << 24;
  if (input.tokens.size() > kMaxRows) fail("the batch has more than " + std::to_string(kMaxRows) + " tokens");
  check_offsets(input.starts, sequences, input.tokens.size(), "starts");
  check_offsets(input.page_starts, sequences, input.page_table.size(), "page_starts");
  for (size_t i = 0; i < input.tokens.size(); ++i) {
    check_token(input.tokens[i], limits_.vocab, "tokens", i);
  }
  for (size_t i = 0; i < input.page_table.size(); ++i) {
    if (input.page_table[i] < 0 || input.page_table[i] >= limits_.page_count) {
      fail("page_table[" + std::to_string(i) + "] is page " + std::to_string(input.page_table[i]) + " of " +
           std::to_string(limits_.page_count));
    }
  }
  if (++step_ == 0) {  // the counter wrapped: forget all marks
    std::fill(written_in_.begin(), written_in_.end(), 0);
    step_ = 1;
  }
  for (size_t sequence = 0; sequence < sequences; ++sequence) check_sequence(input, static_cast<int64_t>(sequence));
  check_sampling(input);
}

void StepChecker::check_sequence(const StepInput& input, int64_t sequence) {
  const size_t s = static_cast<size_t>(sequence);
  const auto fail_here = [&](const std::string& what) { fail("sequence " + std::to_string(sequence) + " " + what); };
  const int64_t count = int64_t{input.starts[s + 1]} - input.starts[s];
  if (count < 1) fail_here("has no tokens");
  const int64_t first = input.positions[s];
  if (first < 0) fail_here("begins at a negative position");
  const int64_t end = first + count;
  if (end > limits_.context_length) {
    fail_here("would reach position " + std::to_string(end - 1) + ", past the context of " +
              std::to_string(limits_.context_length));
  }
  const int64_t pages = int64_t{input.page_starts[s + 1]} - input.page_starts[s];
  if (pages * kPageTokens < end) {
    fail_here("needs " + std::to_string((end + kPageTokens - 1) / kPageTokens) + " pages and has " +
              std::to_string(pages));
  }
  // Two sequences that write one page would make each other's result depend on thread timing.
  for (int64_t page = first / kPageTokens; page <= (end - 1) / kPageTokens; ++page) {
    const int32_t number = input.page_table[static_cast<size_t>(input.page_starts[s] + page)];
    uint32_t& mark = written_in_[static_cast<size_t>(number)];
    if (mark == step_) fail_here("writes to page " + std::to_string(number) + ", which is written already");
    mark = step_;
  }
}

void StepChecker::check_sampling(const StepInput& input) const {
  const size_t count = input.sample_rows.size();
  for (size_t i = 0; i < count; ++i) {
    if (input.sample_rows[i] < 0 || input.sample_rows[i] >= input.rows()) {
      fail("sample_rows[" + std::to_string(i) + "] is row " + std::to_string(input.sample_rows[i]) + " of " +
           std::to_string(input.rows()));
    }
    if (i > 0 && input.sample_rows[i] <= input.sample_rows[i - 1]) {
      fail("sample_rows[" + std::to_string(i) + "] is not after the one before it");
    }
  }
  if (input.samplers.empty()) return;
  if (input.samplers.size() != count) fail("samplers must have one entry for each of sample_rows");
  if (!input.histories.empty() && input.histories.size() != count) {
    fail("histories must have one entry for each of sample_rows");
  }
  for (size_t i = 0; i < count; ++i) {
    const SamplerConfig& config = *input.samplers[i];
    for (const LogitBias& bias : config.logit_bias) {
      check_token(bias.token, limits_.vocab, "logit_bias of samplers", i);
    }
    if (!config.needs_history()) continue;
    const TokenHistory history = input.histories.empty() ? TokenHistory{} : input.histories[i];
    if (history.count > 0 && history.tokens == nullptr) fail("sampler " + std::to_string(i) + " needs a history");
    if (history.prompt_count < 0 || history.prompt_count > history.count) {
      fail("histories[" + std::to_string(i) + "] has a prompt longer than itself");
    }
    for (int64_t t = 0; t < history.count; ++t) {
      check_token(history.tokens[t], limits_.vocab, "histories", i);
    }
  }
}

}  // namespace tokenmill
