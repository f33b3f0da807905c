// A model as data. models/<type>.py writes it, decoder/ executes it; no architecture name appears in native code.
#pragma once
#include <cstdint>

namespace tokenmill {

// Index into the model's tensor table; absent when negative.
using TensorIndex = int32_t;
constexpr TensorIndex kNoTensor = -1;

enum class RopeStyle : uint8_t {
  none = 0,
  interleaved,  // rotates (x[2i], x[2i+1])
  half,         // rotates (x[i], x[i + rotary_dim/2])
};

enum class Activation : uint8_t { silu = 0, gelu_tanh };

struct RopePlan {
  RopeStyle style = RopeStyle::none;
  int32_t rotary_dim = 0;                // <= head_dim; the rest passes unrotated
  double base = 10000.0;                 // frequency i is base^(-2i/rotary_dim)
  double position_scale = 1.0;           // linear scaling: the position is multiplied by this
  TensorIndex freq_factors = kNoTensor;  // F32 [rotary_dim/2]: frequency i is divided by factor i
};

// y = W x (+ bias). W is [out_features][in_features].
struct LinearPlan {
  TensorIndex weight = kNoTensor;
  TensorIndex bias = kNoTensor;  // F32 [out_features]
};

struct AttentionPlan {
  int32_t head_count = 0;
  int32_t kv_head_count = 0;
  int32_t head_dim = 0;
  float score_scale = 0.0F;  // multiplies q·k; usually 1/sqrt(head_dim)
  int32_t window = 0;        // 0: all earlier keys; n > 0: only the last n, the query's own key included
  LinearPlan query, key, value, output;
  TensorIndex query_norm = kNoTensor;  // RMS norm over each head, F32 [head_dim]
  TensorIndex key_norm = kNoTensor;
  RopePlan rope;
};

struct FeedForwardPlan {
  int32_t hidden = 0;
  Activation activation = Activation::silu;
  LinearPlan gate, up, down;  // down(act(gate x) * up x)
  int32_t expert_count = 0;   // > 0 is reserved for mixture-of-experts models
  int32_t experts_used = 0;
};

// x += post_attention_norm?(attention(attention_norm(x))); x += post_ffn_norm?(ffn(ffn_norm(x)))
struct LayerPlan {
  TensorIndex attention_norm = kNoTensor;
  AttentionPlan attention;
  TensorIndex post_attention_norm = kNoTensor;
  TensorIndex ffn_norm = kNoTensor;
  FeedForwardPlan ffn;
  TensorIndex post_ffn_norm = kNoTensor;
};

// What is the same for all layers; the layers themselves are an array of LayerPlan beside it.
struct ModelPlan {
  int32_t vocab_size = 0;
  int32_t embedding_dim = 0;
  int32_t layer_count = 0;
  float norm_epsilon = 0.0F;
  float embedding_scale = 1.0F;
  TensorIndex token_embedding = kNoTensor;  // [vocab][embedding_dim]
  TensorIndex output_norm = kNoTensor;
  LinearPlan output;  // the same tensor as token_embedding when tied
};

}  // namespace tokenmill
