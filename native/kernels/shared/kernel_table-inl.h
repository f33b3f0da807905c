// The table of a set, filled from the functions that set_functions-inl.h declares: the order of the formats and of the
// members stands in one place.
#pragma once
#include "kernels/shared/set_functions-inl.h"

// name: the set's folder; required: CpuFeatureMask; rank: see KernelSet; panel_rows: rows of a packed panel; then,
// where the set has them, its peak loops.
#define TOKENMILL_KERNEL_TABLE(set_name, required_features, set_rank, rows_of_panel, ...)                           \
  {.name = (set_name),                                                                                              \
   .required = (required_features),                                                                                 \
   .rank = (set_rank),                                                                                              \
   .panel_rows = (rows_of_panel),                                                                                   \
   .panel_bytes = panel_bytes,                                                                                      \
   .pack_panel = pack_panel,                                                                                        \
   .unpack_row = unpack_row,                                                                                        \
   .activation_packing = activation_packing,                                                                        \
   .packed_activation_words = packed_activation_words,                                                              \
   .pack_activations = pack_activations,                                                                            \
   .matmul = {matmul_f32, matmul_f16, matmul_bf16, matmul_q4_0, matmul_q4_1, matmul_q5_0, matmul_q5_1, matmul_q8_0, \
              matmul_q4_k, matmul_q5_k, matmul_q6_k, matmul_iq4_nl},                                                \
   .quantize_rows = quantize_rows,                                                                                  \
   .rms_norm = rms_norm,                                                                                            \
   .rope = rope,                                                                                                    \
   .gated_activation = gated_activation,                                                                            \
   .add = add,                                                                                                      \
   .store_kv = store_kv,                                                                                            \
   .attention_block = attention_block,                                                                              \
   .attention_fold = attention_fold,                                                                                \
   .attention_finish = attention_finish __VA_OPT__(, .peak_loops = __VA_ARGS__)}
