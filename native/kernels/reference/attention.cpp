#include <limits>

#include "kernels/reference/scalar_math.h"
#include "kernels/shared/set_functions-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Score of one key: its elements are a column of the page.
float score(const AttentionBlock& block, const float* query, int key) {
  const uint16_t* page = block.key_pages[key / kPageTokens];
  float sum = 0.0F;
  for (int d = 0; d < block.head_dim; ++d) {
    sum = fma(query[d], half_to_float(page[d * kPageTokens + key % kPageTokens]), sum);
  }
  return sum * block.score_scale;
}

void attend_one_query(const AttentionBlock& block, int query) {
  const int begin = block.key_begin[query];
  const int end = block.key_end[query];
  float* weight = block.scratch + query * kAttentionBlockTokens;
  float largest = kMinusInfinity;
  for (int key = begin; key < end; ++key) {
    weight[key] = score(block, block.queries + query * block.query_stride, key);
    largest = weight[key] > largest ? weight[key] : largest;
  }
  // The block begins at a multiple of 256, so the key's lane is the same by absolute and by relative position.
  float lane[16] = {};
  for (int key = begin; key < end; ++key) {
    weight[key] = exp(weight[key] - largest);
    lane[key % 16] += weight[key];
  }
  // An empty range is told by -inf. Where keys were seen but no score was finite (fp16 overflow), the sum is a NaN that
  // must reach the output. Otherwise a zero of either sign becomes +0, whichever came first.
  block.max[query] = begin < end && largest == kMinusInfinity ? 0.0F : largest + 0.0F;
  block.sum[query] = fold_lanes(lane);
  float* output = block.output + static_cast<int64_t>(query) * block.head_dim;
  for (int d = 0; d < block.head_dim; ++d) {
    float sum = 0.0F;
    for (int key = begin; key < end; ++key) {
      const uint16_t* page = block.value_pages[key / kPageTokens];
      sum = fma(weight[key], half_to_float(page[key % kPageTokens * block.head_dim + d]), sum);
    }
    output[d] = sum;
  }
}

}  // namespace

void store_kv(const float* key, const float* value, int32_t head_dim, int32_t slot, uint16_t* key_page,
              uint16_t* value_page) {
  for (int32_t d = 0; d < head_dim; ++d) {
    key_page[d * kPageTokens + slot] = float_to_half(key[d]);
    value_page[slot * head_dim + d] = float_to_half(value[d]);
  }
}

void attention_block(const AttentionBlock& block) {
  for (int query = 0; query < block.query_count; ++query) {
    attend_one_query(block, query);
  }
}

void attention_fold(float* max, float* sum, float* output, float block_max, float block_sum, const float* block_output,
                    int32_t head_dim) {
  if (block_max == kMinusInfinity) {
    return;
  }
  if (*max == kMinusInfinity) {
    *max = block_max;
    *sum = block_sum;
    for (int32_t d = 0; d < head_dim; ++d) {
      output[d] = block_output[d];
    }
    return;
  }
  const float largest = block_max > *max ? block_max : *max;
  const float keep = exp(*max - largest);
  const float take = exp(block_max - largest);
  *sum = fma(*sum, keep, block_sum * take);
  for (int32_t d = 0; d < head_dim; ++d) {
    output[d] = fma(output[d], keep, block_output[d] * take);
  }
  *max = largest;
}

void attention_finish(const float* output, float sum, int32_t head_dim, float* result) {
  for (int32_t d = 0; d < head_dim; ++d) {
    result[d] = output[d] / sum;
  }
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
