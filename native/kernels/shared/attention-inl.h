// KV store and attention of KernelSet over Vec16. Include the set's vec16.h first; compiled once in each set's
// namespace.
//
// Queries of a block go in tiles: a tile loads and converts each key or value once for all its queries. Tiles cover the
// keys that every query of the tile sees; the few keys at the edges that only some see are added one query at a time.
#pragma once
#include "kernels/shared/set_functions-inl.h"
#include "kernels/shared/vec_math-inl.h"

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

constexpr float kMinusInfinity = -__builtin_inff();

struct KeyRange {
  int32_t begin;
  int32_t end;
};

static inline int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static inline float* weights_of(const AttentionBlock& block, int32_t query) {
  return block.scratch + query * kAttentionBlockTokens;
}

static inline float* output_of(const AttentionBlock& block, int32_t query) {
  return block.output + static_cast<int64_t>(query) * block.head_dim;
}

// Pages of keys, or vectors of output elements, that a tile of so many queries works on at once: enough independent
// sums to hide the latency of the fma, no more than the registers hold.
constexpr int vectors_at_once(int queries) {
  const int vectors = kTileVectors / queries;
  return vectors < 1 ? 1 : vectors > 4 ? 4 : vectors;
}

// Scores of `queries` queries with all keys of `pages` pages: lane = key, one fma for each element of the head.
template <int queries, int pages>
static inline void score_pages(const AttentionBlock& block, int32_t first_query, int32_t first_page) {
  const float* query = block.queries + first_query * block.query_stride;
  const int64_t stride = block.query_stride;
  const uint16_t* const* page = block.key_pages + first_page;
  Vec16 sum[queries][pages];
  for (int i = 0; i < queries; ++i) {
    for (int p = 0; p < pages; ++p) {
      sum[i][p] = zero16();
    }
  }
  for (int32_t d = 0; d < block.head_dim; ++d) {
    for (int p = 0; p < pages; ++p) {
      const Vec16 key = load_half16(page[p] + d * kPageTokens);
      for (int i = 0; i < queries; ++i) {
        sum[i][p] = fma16(broadcast16(query[i * stride + d]), key, sum[i][p]);
      }
    }
  }
  const Vec16 scale = broadcast16(block.score_scale);
  for (int i = 0; i < queries; ++i) {
    float* score = weights_of(block, first_query + i) + first_page * kPageTokens;
    for (int p = 0; p < pages; ++p) {
      store16(score + p * kPageTokens, mul16(sum[i][p], scale));
    }
  }
}

template <int queries>
static inline void score_range(const AttentionBlock& block, int32_t first_query, KeyRange keys) {
  constexpr int kPages = vectors_at_once(queries);
  int32_t page = keys.begin / kPageTokens;
  const int32_t end = (keys.end + kPageTokens - 1) / kPageTokens;
  for (; page + kPages <= end; page += kPages) {
    score_pages<queries, kPages>(block, first_query, page);
  }
  for (; page < end; ++page) {
    score_pages<queries, 1>(block, first_query, page);
  }
}

// Adds weight * value for keys in ascending order to elements d .. d + 16 * vectors of the outputs.
template <int queries, int vectors>
static inline void add_values(const AttentionBlock& block, int32_t first_query, KeyRange keys, int32_t d) {
  const float* weight = weights_of(block, first_query);
  float* output = output_of(block, first_query) + d;
  Vec16 sum[queries][vectors];
  for (int i = 0; i < queries; ++i) {
    for (int v = 0; v < vectors; ++v) {
      sum[i][v] = load16(output + i * block.head_dim + 16 * v);
    }
  }
  for (int32_t key = keys.begin; key < keys.end;) {
    const int32_t slot = key % kPageTokens;
    const uint16_t* value = block.value_pages[key / kPageTokens] + slot * block.head_dim + d;
    const int32_t end = smaller(key - slot + kPageTokens, keys.end);
    for (; key < end; ++key, value += block.head_dim) {
      for (int v = 0; v < vectors; ++v) {
        const Vec16 element = load_half16(value + 16 * v);
        for (int i = 0; i < queries; ++i) {
          sum[i][v] = fma16(broadcast16(weight[i * kAttentionBlockTokens + key]), element, sum[i][v]);
        }
      }
    }
  }
  for (int i = 0; i < queries; ++i) {
    for (int v = 0; v < vectors; ++v) {
      store16(output + i * block.head_dim + 16 * v, sum[i][v]);
    }
  }
}

// The last 8 elements of a head whose size is no multiple of 16.
static inline void add_values_of_rest(const AttentionBlock& block, int32_t query, KeyRange keys, int32_t d) {
  float* output = output_of(block, query) + d;
  const int32_t count = block.head_dim - d;
  Vec16 sum = load_first16(output, count);
  for (int32_t key = keys.begin; key < keys.end; ++key) {
    const uint16_t* value = block.value_pages[key / kPageTokens] + key % kPageTokens * block.head_dim + d;
    sum = fma16(broadcast16(weights_of(block, query)[key]), load_first_half16(value, count), sum);
  }
  store_first16(output, count, sum);
}

template <int queries>
static inline void add_value_range(const AttentionBlock& block, int32_t first_query, KeyRange keys) {
  constexpr int kVectors = vectors_at_once(queries);
  if (keys.begin >= keys.end) {
    return;
  }
  int32_t d = 0;
  for (; d + 16 * kVectors <= block.head_dim; d += 16 * kVectors) {
    add_values<queries, kVectors>(block, first_query, keys, d);
  }
  for (; d + 16 <= block.head_dim; d += 16) {
    add_values<queries, 1>(block, first_query, keys, d);
  }
  for (int i = 0; d < block.head_dim && i < queries; ++i) {
    add_values_of_rest(block, first_query + i, keys, d);
  }
}

// Turns the scores of the visible keys into weights exp(score - max); writes the maximum and the sum.
static inline void weigh(const AttentionBlock& block, int32_t query, KeyRange keys) {
  float* weight = weights_of(block, query);
  const int32_t first = keys.begin / kPageTokens * kPageTokens;
  Vec16 largest = broadcast16(kMinusInfinity);
  for (int32_t key = first; key < keys.end; key += kPageTokens) {
    const Vec16 score = load16(weight + key);
    // A NaN score loses the comparison, as in scalar code.
    largest = max16(select_range16(keys.begin - key, keys.end - key, score, largest), largest);
  }
  const float max = largest16(largest);
  const Vec16 shift = broadcast16(max);
  Vec16 sum = zero16();
  for (int32_t key = first; key < keys.end; key += kPageTokens) {
    const Vec16 power = exp16(sub16(load16(weight + key), shift));
    const Vec16 visible = select_range16(keys.begin - key, keys.end - key, power, zero16());
    store16(weight + key, visible);
    sum = add16(sum, visible);
  }
  // Without a finite score the sum is a NaN, which must not pass for an empty block. Otherwise a zero of either sign
  // becomes +0, because lanes may meet them in any order.
  block.max[query] = max == kMinusInfinity ? 0.0F : max + 0.0F;
  block.sum[query] = fold16(sum);
}

static inline void clear_output(const AttentionBlock& block, int32_t query) {
  float* output = output_of(block, query);
  for (int32_t d = 0; d < block.head_dim; ++d) {
    output[d] = 0.0F;
  }
}

static inline void attend_one(const AttentionBlock& block, int32_t query) {
  const KeyRange keys{block.key_begin[query], block.key_end[query]};
  clear_output(block, query);
  if (keys.begin >= keys.end) {
    block.max[query] = kMinusInfinity;
    block.sum[query] = 0.0F;
    return;
  }
  score_range<1>(block, query, keys);
  weigh(block, query, keys);
  add_value_range<1>(block, query, keys);
}

// Queries first .. first + queries - 1 together.
template <int queries>
static inline void attend_tile(const AttentionBlock& block, int32_t first) {
  KeyRange all{block.key_begin[first], block.key_end[first]};  // keys that some query sees
  KeyRange common = all;                                       // keys that every query sees
  for (int i = 1; i < queries; ++i) {
    const int32_t begin = block.key_begin[first + i];
    const int32_t end = block.key_end[first + i];
    all = {smaller(all.begin, begin), larger(all.end, end)};
    common = {larger(common.begin, begin), smaller(common.end, end)};
  }
  if (common.begin >= common.end) {  // with common keys the union has no gap, so that all its pages exist
    for (int i = 0; i < queries; ++i) {
      attend_one(block, first + i);
    }
    return;
  }
  score_range<queries>(block, first, all);
  for (int i = 0; i < queries; ++i) {
    const int32_t query = first + i;
    clear_output(block, query);
    weigh(block, query, {block.key_begin[query], block.key_end[query]});
    add_value_range<1>(block, query, {block.key_begin[query], common.begin});
  }
  add_value_range<queries>(block, first, common);
  for (int i = 0; i < queries; ++i) {
    add_value_range<1>(block, first + i, {common.end, block.key_end[first + i]});
  }
}

template <int queries>
static inline int32_t attend_tiles(const AttentionBlock& block, int32_t query) {
  for (; query + queries <= block.query_count; query += queries) {
    attend_tile<queries>(block, query);
  }
  return query;
}

void attention_block(const AttentionBlock& block) {
  int32_t query = 0;
  if constexpr (kMaxQueryTile >= 8) {
    query = attend_tiles<8>(block, query);
  }
  query = attend_tiles<6>(block, query);
  query = attend_tiles<4>(block, query);
  query = attend_tiles<3>(block, query);
  query = attend_tiles<2>(block, query);
  if (query < block.query_count) {
    attend_one(block, query);
  }
}

void store_kv(const float* key, const float* value, int32_t head_dim, int32_t slot, uint16_t* key_page,
              uint16_t* value_page) {
  for (int32_t d = 0; d < head_dim; d += 16) {
    const int32_t count = smaller(head_dim - d, 16);
    uint16_t halves[16];
    store_half16(halves, count == 16 ? load16(key + d) : load_first16(key + d, count));
    for (int32_t i = 0; i < count; ++i) {
      key_page[(d + i) * kPageTokens + slot] = halves[i];
    }
    store_half16(halves, count == 16 ? load16(value + d) : load_first16(value + d, count));
    for (int32_t i = 0; i < count; ++i) {
      value_page[slot * head_dim + d + i] = halves[i];
    }
  }
}

static inline float exp1(float x) {
  float lanes[16];
  store16(lanes, exp16(broadcast16(x)));
  return lanes[0];
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
  const float keep = exp1(*max - largest);
  const float take = exp1(block_max - largest);
  *sum = fma1(*sum, keep, block_sum * take);
  *max = largest;
  int32_t d = 0;
  for (; d + 16 <= head_dim; d += 16) {
    const Vec16 added = mul16(load16(block_output + d), broadcast16(take));
    store16(output + d, fma16(load16(output + d), broadcast16(keep), added));
  }
  for (; d < head_dim; ++d) {
    output[d] = fma1(output[d], keep, block_output[d] * take);
  }
}

void attention_finish(const float* output, float sum, int32_t head_dim, float* result) {
  int32_t d = 0;
  for (; d + 16 <= head_dim; d += 16) {
    store16(result + d, div16(load16(output + d), broadcast16(sum)));
  }
  for (; d < head_dim; ++d) {
    result[d] = output[d] / sum;
  }
}

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
