#include "dispatch/borrowed_functions.h"

#include "dispatch/compare_sets.h"
#include "dispatch/kernel_registry.h"

namespace tokenmill {

std::vector<std::string> borrowed_functions(const KernelSet& set) {
  const KernelSet& reference = reference_kernel_set();
  std::vector<std::string> names;
  if (&set == &reference) {
    return names;
  }
  const auto note = [&names](const std::string& name, bool borrowed) {
    if (borrowed) {
      names.push_back(name);
    }
  };
  note("pack_panel", set.pack_panel == reference.pack_panel);
  note("unpack_row", set.unpack_row == reference.unpack_row);
  note("pack_activations", set.pack_activations == reference.pack_activations);
  for (int i = 0; i < kWeightFormatCount; ++i) {
    note(matmul_name(static_cast<WeightFormat>(i)), set.matmul[i] == reference.matmul[i]);
  }
  note("quantize_rows", set.quantize_rows == reference.quantize_rows);
  note("rms_norm", set.rms_norm == reference.rms_norm);
  note("rope", set.rope == reference.rope);
  note("gated_activation", set.gated_activation == reference.gated_activation);
  note("add", set.add == reference.add);
  note("store_kv", set.store_kv == reference.store_kv);
  note("attention_block", set.attention_block == reference.attention_block);
  note("attention_fold", set.attention_fold == reference.attention_fold);
  note("attention_finish", set.attention_finish == reference.attention_finish);
  return names;
}

}  // namespace tokenmill
