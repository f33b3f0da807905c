#include "decoder/decoder_plan.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "contract/kernel_set.h"

namespace tokenmill {
namespace {

// Far above any model, low enough that products of two sizes stay within int64.
constexpr int64_t kMaxSize = int64_t{1} << 26;

[[noreturn]] void fail(const std::string& what) { throw std::invalid_argument("plan: " + what); }

void check_size(const std::string& name, int64_t value) {
  if (value < 1 || value > kMaxSize) fail(name + " is " + std::to_string(value));
}

class SpecTable {
 public:
  explicit SpecTable(const DecoderPlan& plan) {
    for (const std::string& name : plan.tensor_names) specs_.push_back({name, false, 0, 0});
  }

  void matrix(TensorIndex index, const std::string& role, int64_t rows, int64_t k) {
    set(index, role, {"", false, rows, k});
  }
  void vector(TensorIndex index, const std::string& role, int64_t n) { set(index, role, {"", true, 1, n}); }
  void optional_vector(TensorIndex index, const std::string& role, int64_t n) {
    if (index != kNoTensor) vector(index, role, n);
  }
  void linear(const LinearPlan& plan, const std::string& role, int64_t rows, int64_t k) {
    matrix(plan.weight, role, rows, k);
    optional_vector(plan.bias, role + " bias", rows);
  }

  std::vector<TensorSpec> take() {
    for (const TensorSpec& spec : specs_) {
      if (spec.k == 0) fail("tensor " + spec.name + " has no role");
    }
    return std::move(specs_);
  }

 private:
  void set(TensorIndex index, const std::string& role, const TensorSpec& wanted) {
    if (index < 0 || static_cast<size_t>(index) >= specs_.size()) fail(role + " names no tensor");
    TensorSpec& spec = specs_[static_cast<size_t>(index)];
    if (spec.k != 0 && (spec.is_vector != wanted.is_vector || spec.rows != wanted.rows || spec.k != wanted.k)) {
      fail("tensor " + spec.name + " is used with two different shapes (" + role + ")");
    }
    spec.is_vector = wanted.is_vector;
    spec.rows = wanted.rows;
    spec.k = wanted.k;
  }

  std::vector<TensorSpec> specs_;
};

void check_rope(const RopePlan& rope, const std::string& at, int32_t head_dim) {
  if (rope.style == RopeStyle::none) return;
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > head_dim) {
    fail(at + "rotary_dim " + std::to_string(rope.rotary_dim) + " must be even and at most head_dim " +
         std::to_string(head_dim));
  }
  if (!std::isfinite(rope.base) || rope.base < 1.0 || rope.base > 1e300) fail(at + "rope base must be at least 1");
  if (!std::isfinite(rope.position_scale) || rope.position_scale <= 0.0 || rope.position_scale > 1e6) {
    fail(at + "rope position_scale must be positive");
  }
}

void check_attention(const AttentionPlan& attention, const std::string& at) {
  check_size(at + "head_count", attention.head_count);
  check_size(at + "kv_head_count", attention.kv_head_count);
  check_size(at + "head_dim", attention.head_dim);
  if (attention.head_count % attention.kv_head_count != 0) {
    fail(at + "head_count " + std::to_string(attention.head_count) + " is no multiple of kv_head_count " +
         std::to_string(attention.kv_head_count));
  }
  if (attention.head_dim % 8 != 0 || attention.head_dim > kMaxHeadDim) {
    fail(at + "head_dim " + std::to_string(attention.head_dim) + " is not a multiple of 8 up to " +
         std::to_string(kMaxHeadDim));
  }
  check_size(at + "attention width", int64_t{attention.head_count} * attention.head_dim);
  if (!std::isfinite(attention.score_scale)) fail(at + "score_scale is not finite");
  if (attention.window < 0) fail(at + "window is negative");
  check_rope(attention.rope, at, attention.head_dim);
}

void check_layer(const LayerPlan& layer, const std::string& at, int64_t embedding, SpecTable& specs) {
  const AttentionPlan& attention = layer.attention;
  check_attention(attention, at);
  const int64_t query_dim = int64_t{attention.head_count} * attention.head_dim;
  const int64_t kv_dim = int64_t{attention.kv_head_count} * attention.head_dim;
  specs.vector(layer.attention_norm, at + "attention_norm", embedding);
  specs.linear(attention.query, at + "query", query_dim, embedding);
  specs.linear(attention.key, at + "key", kv_dim, embedding);
  specs.linear(attention.value, at + "value", kv_dim, embedding);
  specs.linear(attention.output, at + "attention output", embedding, query_dim);
  specs.optional_vector(attention.query_norm, at + "query_norm", attention.head_dim);
  specs.optional_vector(attention.key_norm, at + "key_norm", attention.head_dim);
  if (attention.rope.style != RopeStyle::none) {
    specs.optional_vector(attention.rope.freq_factors, at + "freq_factors", attention.rope.rotary_dim / 2);
  }
  specs.optional_vector(layer.post_attention_norm, at + "post_attention_norm", embedding);

  const FeedForwardPlan& ffn = layer.ffn;
  if (ffn.expert_count > 0 || ffn.experts_used > 0) fail(at + "mixture-of-experts layers are not supported");
  check_size(at + "ffn hidden", ffn.hidden);
  specs.vector(layer.ffn_norm, at + "ffn_norm", embedding);
  specs.linear(ffn.gate, at + "ffn gate", ffn.hidden, embedding);
  specs.linear(ffn.up, at + "ffn up", ffn.hidden, embedding);
  specs.linear(ffn.down, at + "ffn down", embedding, ffn.hidden);
  specs.optional_vector(layer.post_ffn_norm, at + "post_ffn_norm", embedding);
}

}  // namespace

std::vector<TensorSpec> check_plan(const DecoderPlan& plan) {
  const ModelPlan& model = plan.model;
  check_size("vocab_size", model.vocab_size);
  check_size("embedding_dim", model.embedding_dim);
  check_size("context_length", plan.context_length);
  check_size("layer count", static_cast<int64_t>(plan.layers.size()));
  if (!std::isfinite(model.norm_epsilon) || model.norm_epsilon < 0.0F) fail("norm_epsilon is negative or not finite");
  if (!std::isfinite(model.embedding_scale)) fail("embedding_scale is not finite");
  SpecTable specs(plan);
  specs.matrix(model.token_embedding, "token_embedding", model.vocab_size, model.embedding_dim);
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    check_layer(plan.layers[i], "layer " + std::to_string(i) + ": ", model.embedding_dim, specs);
  }
  specs.vector(model.output_norm, "output_norm", model.embedding_dim);
  specs.linear(model.output, "output", model.vocab_size, model.embedding_dim);
  return specs.take();
}

}  // namespace tokenmill
