// Compares one function of a kernel set with the reference set on seeded data. The start-up self-test calls these with
// a few shapes, the native tests with many. Each returns an empty string when all bits are equal (a NaN equals any
// NaN), else a sentence that begins with the function's name and says where the first difference is.
#pragma once
#include <string>

#include "contract/kernel_set.h"
#include "dispatch/test_data.h"

namespace tokenmill {

struct MatmulShape {
  int64_t rows;
  int64_t k;
  int64_t tokens;
};

struct AttentionShape {
  int32_t queries;
  int32_t head_dim;
  int32_t key_begin;  // of the first query; the others' ranges follow from the kind
  int32_t key_end;
  enum class Ranges : uint8_t {
    same,    // every query sees the same keys: heads of a group, one token
    causal,  // each query sees one key more than the one before: prefill
    window,  // causal, and the first key moves too
    random,  // any ranges, some of them empty
  } ranges;
};

// The packed panels give back the file's bytes, and a matrix does not take more than 1.02 times its file bytes when its
// rows are whole panels.
std::string compare_packing(const KernelSet& set, WeightFormat format, ValueKind kind, int64_t rows, int64_t k,
                            uint64_t seed);
std::string compare_matmul(const KernelSet& set, WeightFormat format, ValueKind kind, const MatmulShape& shape,
                           uint64_t seed);
std::string compare_quantize_rows(const KernelSet& set, ValueKind kind, int64_t rows, int64_t k, uint64_t seed);
std::string compare_rms_norm(const KernelSet& set, ValueKind kind, int64_t rows, int64_t n, uint64_t seed);
std::string compare_rope(const KernelSet& set, RopeStyle style, int64_t heads, int64_t head_dim, int64_t rotary_dim,
                         uint64_t seed);
std::string compare_gated_activation(const KernelSet& set, Activation activation, ValueKind kind, int64_t n,
                                     uint64_t seed);
std::string compare_add(const KernelSet& set, ValueKind kind, int64_t n, uint64_t seed);
std::string compare_store_kv(const KernelSet& set, ValueKind kind, int32_t head_dim, uint64_t seed);
std::string compare_attention_block(const KernelSet& set, ValueKind kind, const AttentionShape& shape, uint64_t seed);
std::string compare_attention_fold(const KernelSet& set, ValueKind kind, int32_t head_dim, uint64_t seed);
std::string compare_attention_finish(const KernelSet& set, int32_t head_dim, uint64_t seed);

// Names as they stand in the results, e.g. "matmul_q4_0".
std::string matmul_name(WeightFormat format);

}  // namespace tokenmill
