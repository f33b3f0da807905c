#include "dispatch/self_test.h"

#include <cstdlib>

#include "dispatch/compare_sets.h"

namespace tokenmill {
namespace {

constexpr ValueKind kKinds[] = {ValueKind::plain, ValueKind::extreme};
constexpr uint64_t kSeed = 20240229;
constexpr int64_t kMostTileTokens = 16;  // every number of tokens up to here may have code of its own
constexpr int64_t kManyTokens = 40;

using Ranges = AttentionShape::Ranges;

// Collects results, at most one for a function.
class Report {
 public:
  void add(std::string result) {
    if (!result.empty() && !failed_) {
      failures_.push_back(std::move(result));
      failed_ = true;
    }
  }
  void next_function() { failed_ = false; }
  std::vector<std::string> take() { return std::move(failures_); }

 private:
  std::vector<std::string> failures_;
  bool failed_ = false;
};

void test_matrices(const KernelSet& set, Report& report) {
  for (int i = 0; i < kWeightFormatCount; ++i) {
    const auto format = static_cast<WeightFormat>(i);
    for (const ValueKind kind : kKinds) {
      report.add(compare_packing(set, format, kind, 2 * set.panel_rows + 1, 512, kSeed));
    }
    report.next_function();
    const bool super_blocks = format_info(format).block_elements == kSuperBlockSize;
    const int64_t rows = 2 * set.panel_rows + 1;
    for (const ValueKind kind : kKinds) {
      for (const int64_t tokens : {1, 2, 7}) {  // the code for one token, and tiles of several with a rest
        report.add(compare_matmul(set, format, kind, {rows, super_blocks ? 512 : 544, tokens}, kSeed));
      }
    }
    for (int64_t tokens = 1; tokens <= kMostTileTokens; ++tokens) {
      report.add(compare_matmul(set, format, ValueKind::plain, {rows, super_blocks ? 256 : 96, tokens}, kSeed));
    }
    report.add(compare_matmul(set, format, ValueKind::plain, {rows, 512, kManyTokens}, kSeed));
    report.next_function();
  }
}

void test_rows(const KernelSet& set, Report& report) {
  for (const ValueKind kind : kKinds) {
    report.add(compare_quantize_rows(set, kind, 5, 288, kSeed));
  }
  report.next_function();
  for (const ValueKind kind : kKinds) {
    report.add(compare_rms_norm(set, kind, 3, 576, kSeed));
    report.add(compare_rms_norm(set, kind, 3, 101, kSeed));
  }
  report.next_function();
  for (const RopeStyle style : {RopeStyle::none, RopeStyle::interleaved, RopeStyle::half}) {
    report.add(compare_rope(set, style, 3, 64, 64, kSeed));
    report.add(compare_rope(set, style, 2, 80, 20, kSeed));
  }
  report.next_function();
  for (const ValueKind kind : kKinds) {
    for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
      report.add(compare_gated_activation(set, activation, kind, 1543, kSeed));
    }
  }
  report.next_function();
  for (const ValueKind kind : kKinds) {
    report.add(compare_add(set, kind, 345, kSeed));
  }
  report.next_function();
}

void test_attention(const KernelSet& set, Report& report) {
  for (const ValueKind kind : kKinds) {
    report.add(compare_store_kv(set, kind, 72, kSeed));
  }
  report.next_function();
  for (const ValueKind kind : kKinds) {
    for (const int32_t head_dim : {64, 72}) {
      report.add(compare_attention_block(set, kind, {1, head_dim, 0, 256, Ranges::same}, kSeed));
      report.add(compare_attention_block(set, kind, {7, head_dim, 3, 75, Ranges::causal}, kSeed));
      report.add(compare_attention_block(set, kind, {5, head_dim, 14, 40, Ranges::window}, kSeed));
      report.add(compare_attention_block(set, kind, {6, head_dim, 0, 0, Ranges::random}, kSeed));
    }
  }
  report.next_function();
  for (const ValueKind kind : kKinds) {
    report.add(compare_attention_fold(set, kind, 72, kSeed));
  }
  report.next_function();
  report.add(compare_attention_finish(set, 72, kSeed));
  report.next_function();
}

}  // namespace

std::vector<std::string> self_test(const KernelSet& set) {
  KernelSet tested = set;
  if (const char* name = std::getenv("TOKENMILL_TEST_BREAK_KERNEL"); name != nullptr && !break_function(tested, name)) {
    return {std::string("TOKENMILL_TEST_BREAK_KERNEL: there is no function '") + name + "'"};
  }
  Report report;
  test_matrices(tested, report);
  test_rows(tested, report);
  test_attention(tested, report);
  return report.take();
}

std::vector<std::string> self_test_functions() {
  std::vector<std::string> names = {
      "pack_panel", "unpack_row", "pack_activations", "quantize_rows",  "rms_norm",         "rope",
      "add",        "store_kv",   "attention_block",  "attention_fold", "attention_finish", "gated_activation"};
  for (int i = 0; i < kWeightFormatCount; ++i) {
    names.push_back(matmul_name(static_cast<WeightFormat>(i)));
  }
  return names;
}

bool break_function(KernelSet& set, std::string_view name) {
  for (int i = 0; i < kWeightFormatCount; ++i) {
    if (name == matmul_name(static_cast<WeightFormat>(i))) {
      set.matmul[i] = [](const PackedMatrix&, const Activations&, int64_t, int64_t, float*, int64_t) {};
      return true;
    }
  }
  if (name == "pack_panel") {
    set.pack_panel = [](WeightFormat, const uint8_t*, int64_t, int64_t, uint8_t*) {};
  } else if (name == "unpack_row") {
    set.unpack_row = [](const PackedMatrix&, int64_t, uint8_t*) {};
  } else if (name == "pack_activations") {
    set.pack_activations = [](WeightFormat, const Activations&, int64_t, int64_t, int32_t*) {};
  } else if (name == "quantize_rows") {
    set.quantize_rows = [](const float*, int64_t, int64_t, int64_t, QuantizedOut, uint8_t*) {};
  } else if (name == "rms_norm") {
    set.rms_norm = [](const float*, int64_t, const float*, float, int64_t, int64_t, float*, int64_t) {};
  } else if (name == "rope") {
    set.rope = [](float*, int64_t, int64_t, int64_t, RopeStyle, const float*, const float*) {};
  } else if (name == "gated_activation") {
    set.gated_activation = [](Activation, const float*, const float*, int64_t, float*) {};
  } else if (name == "add") {
    set.add = [](float*, const float*, int64_t) {};
  } else if (name == "store_kv") {
    set.store_kv = [](const float*, const float*, int32_t, int32_t, uint16_t*, uint16_t*) {};
  } else if (name == "attention_block") {
    set.attention_block = [](const AttentionBlock&) {};
  } else if (name == "attention_fold") {
    set.attention_fold = [](float*, float*, float*, float, float, const float*, int32_t) {};
  } else if (name == "attention_finish") {
    set.attention_finish = [](const float*, float, int32_t, float*) {};
  } else {
    return false;
  }
  return true;
}

}  // namespace tokenmill
