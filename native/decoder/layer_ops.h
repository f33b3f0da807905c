// A layer ready to run: its tensors resolved, and what its inputs need worked out once.
#pragma once
#include <cstdint>
#include <vector>

#include "contract/kernel_set.h"
#include "decoder/attention_schedule.h"
#include "decoder/decoder_plan.h"
#include "decoder/rope_table.h"
#include "weights/weight_store.h"

namespace tokenmill {

// y = W x (+ bias); a null bias is absent.
struct Linear {
  const PackedMatrix* weight = nullptr;  // the first of the weight's copies (WeightStore::matrix)
  const float* bias = nullptr;

  bool needs_quantized_input() const { return format_info(weight->format).integer; }
};

struct LayerOps {
  const LayerPlan* plan = nullptr;
  const float* attention_norm = nullptr;
  Linear query, key, value, output;
  const float* query_norm = nullptr;  // null: absent, as for all norms below
  const float* key_norm = nullptr;
  const float* post_attention_norm = nullptr;
  const float* ffn_norm = nullptr;
  Linear gate, up, down;
  const float* post_ffn_norm = nullptr;
  int32_t rope = -1;      // index into ModelOps::ropes, or -1
  int32_t schedule = -1;  // index into ModelOps::geometries
};

struct ModelOps {
  const PackedMatrix* token_embedding = nullptr;  // the first of its copies
  const float* output_norm = nullptr;
  Linear output;
  std::vector<LayerOps> layers;
  std::vector<RopeTable> ropes;               // the distinct ones
  std::vector<AttentionGeometry> geometries;  // the distinct ones
};

// Every tensor must be loaded. Throws std::invalid_argument for a frequency factor that is not positive. The result
// points into `plan` and `weights`.
ModelOps resolve_model(const DecoderPlan& plan, const WeightStore& weights);

}  // namespace tokenmill
