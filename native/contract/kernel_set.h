// The table of functions that a kernel set fills in. A set is one folder under kernels/; the reference set is the
// meaning of every function, and every other set must give the same bits (docs/numerics.md).
//
// Conventions: all float arrays are binary32; a row is contiguous; strides are in elements; pointers of outputs
// never alias inputs unless said. No function allocates, throws, or touches the floating-point environment.
#pragma once
#include <cstddef>
#include <cstdint>

#include "contract/cpu_feature.h"
#include "contract/layer_plan.h"
#include "contract/weight_formats.h"

namespace tokenmill {

constexpr int kPageTokens = 16;             // keys in one KV page
constexpr int kAttentionBlockTokens = 256;  // keys in one attention block, at absolute multiples
constexpr int kPagesPerBlock = kAttentionBlockTokens / kPageTokens;
constexpr int kMaxHeadDim = 256;

// A weight matrix packed by the set that will read it: panels of `panel_rows` output rows, one after another.
struct PackedMatrix {
  WeightFormat format = WeightFormat::f32;
  int64_t rows = 0;               // output features N
  int64_t k = 0;                  // input features K
  const uint8_t* data = nullptr;  // 64-byte aligned; ceil(rows/panel_rows) * panel_bytes
  uint64_t panel_bytes = 0;
};

// Activations of `rows` tokens, both as floats and (for integer formats) quantized in groups of 32 along K.
struct Activations {
  int64_t rows = 0;
  int64_t k = 0;
  const float* f32 = nullptr;          // [rows][k]
  const int8_t* q = nullptr;           // [rows][k], in -127..127
  const float* scale = nullptr;        // [rows][k/32]
  const int16_t* half_sums = nullptr;  // [rows][k/32][2]: sum of q over each half group of 16
  const int32_t* packed = nullptr;     // what pack_activations wrote, for integer formats that have a packing
};

constexpr int kMaxActivationPackings = 8;

struct QuantizedOut {
  int8_t* q;
  float* scale;
  int16_t* half_sums;
};

// One KV head, one block of at most 256 keys at absolute positions [256 b, 256 b + key_end_max).
struct AttentionBlock {
  const float* queries;  // [query_count][head_dim]
  int64_t query_stride;  // elements between queries
  int32_t query_count;   // >= 1
  int32_t head_dim;      // multiple of 8, <= kMaxHeadDim
  float score_scale;
  // Query i sees keys key_begin[i] <= j < key_end[i] (relative to the block, 0..256). An empty range gives
  // max = -inf, sum = 0 and output 0 for that query.
  const int32_t* key_begin;
  const int32_t* key_end;
  const uint16_t* const*
      key_pages;  // [16] pages of fp16 [head_dim][16 keys]; only those that hold visible keys are read
  const uint16_t* const* value_pages;  // [16] pages of fp16 [16 keys][head_dim]
  float* max;                          // [query_count]   largest score
  float* sum;                          // [query_count]   sum of exp(score - max), by lanes = position mod 16
  float* output;                       // [query_count][head_dim] sum of exp(score - max) * value, keys ascending
  float* scratch;                      // [query_count * 256], 64-byte aligned
};

// A loop that only multiplies and adds: what the set's instructions reach at most on this CPU. For benchmarks.
struct PeakLoop {
  const char* quantity;            // "int8", "int8_multiply" (the multiplying instruction alone) or "fp32"
  const char* instructions;        // as an assembler spells them
  int64_t (*run)(int64_t rounds);  // a round takes well under a microsecond; returns the multiply-adds of all rounds
};

struct KernelSet {
  const char* name;
  CpuFeatureMask required;  // every bit must be present
  int32_t rank;             // the usable set with the highest rank is chosen; reference has rank 0
  int32_t panel_rows;       // rows per panel of PackedMatrix, the same for all formats of this set

  // --- packing (load time; may be called from several threads on different panels) ---
  // Bytes of one panel for rows of k elements. k is a multiple of the format's block.
  uint64_t (*panel_bytes)(WeightFormat format, int64_t k);
  // Packs up to panel_rows rows of file blocks ([rows][row_bytes(format, k)]) into one panel; absent rows become zero.
  void (*pack_panel)(WeightFormat format, const uint8_t* file_rows, int64_t rows, int64_t k, uint8_t* panel);
  // The inverse: writes the file's bytes of row `row` of the matrix (used for embedding look-up and in tests).
  void (*unpack_row)(const PackedMatrix& w, int64_t row, uint8_t* file_row);

  // --- activations as this set's integer matmuls read them: packed once, read by every thread ---
  // Formats with the same number (0 .. kMaxActivationPackings - 1) read the same packing; -1: the format's matmul reads
  // the other members of Activations.
  int32_t (*activation_packing)(WeightFormat format);
  // 32-bit words of `rows` packed rows of k; 0 where there is no packing.
  int64_t (*packed_activation_words)(WeightFormat format, int64_t rows, int64_t k);
  // Packs rows [row_begin, row_end) of x, all of whose rows share `packed`. Other threads may pack other rows.
  void (*pack_activations)(WeightFormat format, const Activations& x, int64_t row_begin, int64_t row_end,
                           int32_t* packed);

  // --- matmul: y[t][n] = sum_k w[n][k] x[t][k] for panels [panel_begin, panel_end), all tokens ---
  // y_stride: elements between tokens in y. Rows past w.rows are not written. One function per format.
  void (*matmul[kWeightFormatCount])(const PackedMatrix& w, const Activations& x, int64_t panel_begin,
                                     int64_t panel_end, float* y, int64_t y_stride);

  // --- row functions; rows are independent, so callers split them among threads ---
  // Quantizes `rows` rows of k (a multiple of 32) floats. Sets nonfinite[row] = 1 where a value is NaN or infinite
  // (that row's outputs are then zero), else 0.
  void (*quantize_rows)(const float* x, int64_t x_stride, int64_t rows, int64_t k, QuantizedOut out,
                        uint8_t* nonfinite);
  // y = x / sqrt(mean(x^2) + epsilon) * weight, per row of n. y may be x.
  void (*rms_norm)(const float* x, int64_t x_stride, const float* weight, float epsilon, int64_t rows, int64_t n,
                   float* y, int64_t y_stride);
  // Rotates heads of one token in place. cos/sin: [rotary_dim/2].
  void (*rope)(float* x, int64_t head_count, int64_t head_dim, int64_t rotary_dim, RopeStyle style, const float* cos,
               const float* sin);
  // out[i] = act(gate[i]) * up[i]; out may be gate.
  void (*gated_activation)(Activation activation, const float* gate, const float* up, int64_t n, float* out);
  // x[i] += y[i]
  void (*add)(float* x, const float* y, int64_t n);

  // --- KV cache and attention ---
  // Converts one token's key and value of one KV head to fp16 and stores them at `slot` (0..15) of a page.
  void (*store_kv)(const float* key, const float* value, int32_t head_dim, int32_t slot, uint16_t* key_page,
                   uint16_t* value_page);
  void (*attention_block)(const AttentionBlock& block);
  // Folds a later block into the running state, in place (max/sum/output as in AttentionBlock, one query):
  //   m = max(M, m_b); a = exp(M - m); b = exp(m_b - m); S = fma(S, a, s_b * b); O = fma(O, a, o_b * b); M = m
  // When M is -inf the state becomes the block; when m_b is -inf the state is left alone.
  void (*attention_fold)(float* max, float* sum, float* output, float block_max, float block_sum,
                         const float* block_output, int32_t head_dim);
  // output[d] / sum
  void (*attention_finish)(const float* output, float sum, int32_t head_dim, float* result);

  // --- benchmarks: an array that ends with an entry whose run is null, or null where nobody wrote such loops ---
  const PeakLoop* peak_loops = nullptr;
};

}  // namespace tokenmill
