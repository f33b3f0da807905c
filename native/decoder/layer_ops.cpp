#include "decoder/layer_ops.h"

#include <algorithm>
#include <stdexcept>

namespace tokenmill {
namespace {

bool same_rope(const RopePlan& a, const RopePlan& b) {
  return a.style == b.style && a.rotary_dim == b.rotary_dim && a.base == b.base &&
         a.position_scale == b.position_scale && a.freq_factors == b.freq_factors;
}

Linear resolve(const LinearPlan& plan, const WeightStore& weights) {
  return {weights.matrix(plan.weight), weights.vector(plan.bias)};
}

void check_freq_factors(const RopePlan& rope, const float* factors) {
  if (factors == nullptr) return;
  for (int32_t i = 0; i < rope.rotary_dim / 2; ++i) {
    if (!(factors[i] > 0.0F)) throw std::invalid_argument("plan: rope frequency factors must be positive");
  }
}

}  // namespace

ModelOps resolve_model(const DecoderPlan& plan, const WeightStore& weights) {
  ModelOps ops;
  ops.token_embedding = weights.matrix(plan.model.token_embedding);
  ops.output_norm = weights.vector(plan.model.output_norm);
  ops.output = resolve(plan.model.output, weights);
  std::vector<const RopePlan*> rope_plans;
  for (const LayerPlan& layer : plan.layers) {
    const AttentionPlan& attention = layer.attention;
    LayerOps out;
    out.plan = &layer;
    out.attention_norm = weights.vector(layer.attention_norm);
    out.query = resolve(attention.query, weights);
    out.key = resolve(attention.key, weights);
    out.value = resolve(attention.value, weights);
    out.output = resolve(attention.output, weights);
    out.query_norm = weights.vector(attention.query_norm);
    out.key_norm = weights.vector(attention.key_norm);
    out.post_attention_norm = weights.vector(layer.post_attention_norm);
    out.ffn_norm = weights.vector(layer.ffn_norm);
    out.gate = resolve(layer.ffn.gate, weights);
    out.up = resolve(layer.ffn.up, weights);
    out.down = resolve(layer.ffn.down, weights);
    out.post_ffn_norm = weights.vector(layer.post_ffn_norm);

    if (attention.rope.style != RopeStyle::none) {
      const auto found = std::find_if(rope_plans.begin(), rope_plans.end(),
                                      [&](const RopePlan* known) { return same_rope(*known, attention.rope); });
      out.rope = static_cast<int32_t>(found - rope_plans.begin());
      if (found == rope_plans.end()) {
        const float* factors = weights.vector(attention.rope.freq_factors);
        check_freq_factors(attention.rope, factors);
        rope_plans.push_back(&attention.rope);
        ops.ropes.emplace_back(attention.rope, factors);
      }
    }
    const AttentionGeometry geometry{attention.kv_head_count, attention.head_count / attention.kv_head_count,
                                     attention.window};
    const auto found = std::find(ops.geometries.begin(), ops.geometries.end(), geometry);
    out.schedule = static_cast<int32_t>(found - ops.geometries.begin());
    if (found == ops.geometries.end()) ops.geometries.push_back(geometry);
    ops.layers.push_back(out);
  }
  return ops;
}

}  // namespace tokenmill
