// Declares the functions of a kernel set in the set's own namespace. Every source of a set includes it; CMake defines
// TOKENMILL_SET_NAMESPACE. The meaning of each function is in contract/kernel_set.h.
#pragma once
#include <cstdint>

#include "contract/kernel_set.h"

#ifndef TOKENMILL_SET_NAMESPACE
#error "a kernel set's source must be compiled with TOKENMILL_SET_NAMESPACE=<name of the set's folder>"
#endif

namespace tokenmill::TOKENMILL_SET_NAMESPACE {

// Defined in kernel_set.cpp; dispatch/kernel_registry.cpp collects the tables of all sets.
extern const KernelSet kernel_set;

// pack_*.cpp
uint64_t panel_bytes(WeightFormat format, int64_t k);
void pack_panel(WeightFormat format, const uint8_t* file_rows, int64_t rows, int64_t k, uint8_t* panel);
void unpack_row(const PackedMatrix& w, int64_t row, uint8_t* file_row);

// pack_activations.cpp
int32_t activation_packing(WeightFormat format);
int64_t packed_activation_words(WeightFormat format, int64_t rows, int64_t k);
void pack_activations(WeightFormat format, const Activations& x, int64_t row_begin, int64_t row_end, int32_t* packed);

// matmul_*.cpp, one function per weight format
#define TOKENMILL_DECLARE_MATMUL(format)                                                                              \
  void matmul_##format(const PackedMatrix& w, const Activations& x, int64_t panel_begin, int64_t panel_end, float* y, \
                       int64_t y_stride);
TOKENMILL_DECLARE_MATMUL(f32)
TOKENMILL_DECLARE_MATMUL(f16)
TOKENMILL_DECLARE_MATMUL(bf16)
TOKENMILL_DECLARE_MATMUL(q4_0)
TOKENMILL_DECLARE_MATMUL(q4_1)
TOKENMILL_DECLARE_MATMUL(q5_0)
TOKENMILL_DECLARE_MATMUL(q5_1)
TOKENMILL_DECLARE_MATMUL(q8_0)
TOKENMILL_DECLARE_MATMUL(q4_k)
TOKENMILL_DECLARE_MATMUL(q5_k)
TOKENMILL_DECLARE_MATMUL(q6_k)
TOKENMILL_DECLARE_MATMUL(iq4_nl)
#undef TOKENMILL_DECLARE_MATMUL

// rows.cpp
void quantize_rows(const float* x, int64_t x_stride, int64_t rows, int64_t k, QuantizedOut out, uint8_t* nonfinite);
void rms_norm(const float* x, int64_t x_stride, const float* weight, float epsilon, int64_t rows, int64_t n, float* y,
              int64_t y_stride);
void rope(float* x, int64_t head_count, int64_t head_dim, int64_t rotary_dim, RopeStyle style, const float* cos,
          const float* sin);
void gated_activation(Activation activation, const float* gate, const float* up, int64_t n, float* out);
void add(float* x, const float* y, int64_t n);

// attention.cpp
void store_kv(const float* key, const float* value, int32_t head_dim, int32_t slot, uint16_t* key_page,
              uint16_t* value_page);
void attention_block(const AttentionBlock& block);
void attention_fold(float* max, float* sum, float* output, float block_max, float block_sum, const float* block_output,
                    int32_t head_dim);
void attention_finish(const float* output, float sum, int32_t head_dim, float* result);

// peak.cpp, in sets that have it
extern const PeakLoop peak_loops[];

}  // namespace tokenmill::TOKENMILL_SET_NAMESPACE
