// What follows a layer's attention.
#include <algorithm>
#include <cstring>

#include "decoder/forward_pass.h"

namespace tokenmill {

ForwardPass::GoingOn ForwardPass::going_on(size_t layer) {
  // Nothing after the last attention is read by other tokens, so rows that are not sampled end there.
  if (layer + 1 == ops_.layers.size()) {
    return {last_hidden_.data(), last_attention_.data(), static_cast<int64_t>(input_->sample_rows.size()),
            sample_bad_.data()};
  }
  return {hidden_.data(), query_.data(), input_->rows(), row_bad_.data()};
}

void ForwardPass::attention_result(int thread, size_t layer) {
  const LayerOps& ops = ops_.layers[layer];
  const AttentionSchedule& schedule = schedules_[static_cast<size_t>(ops.schedule)];
  const int64_t query_dim = ops.query.weight->rows;
  const GoingOn rows = going_on(layer);
  const bool gather = rows.hidden != hidden_.data();
  for_rows(thread, Phase::other, rows.rows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = gather ? input_->sample_rows[static_cast<size_t>(i)] : i;
      const int32_t tile =
          schedule.partial_count() > 0 ? schedule.split_tile_of_row()[static_cast<size_t>(row)] : int32_t{-1};
      if (tile >= 0) fold_split_row(thread, layer, schedule.tiles()[static_cast<size_t>(tile)], row);
      if (gather) {
        std::memcpy(rows.attention + i * query_dim, query_.data() + row * query_dim,
                    static_cast<size_t>(query_dim) * sizeof(float));
        std::memcpy(rows.hidden + i * embedding_, hidden_.data() + row * embedding_,
                    static_cast<size_t>(embedding_) * sizeof(float));
      }
    }
    prepare_input(rows.attention, rows.rows, query_dim, begin, end, {&ops.output}, rows.bad);
  });
}

void ForwardPass::add_to_hidden(float* hidden, const float* bias, const float* norm, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* projected = projected_.data() + row * embedding_;
    if (bias != nullptr) kernels_.add(projected, bias, embedding_);
    if (norm != nullptr) {
      kernels_.rms_norm(projected, embedding_, norm, plan_.model.norm_epsilon, 1, embedding_, projected, embedding_);
    }
    kernels_.add(hidden + row * embedding_, projected, embedding_);
  }
}

void ForwardPass::feed_forward_input(int thread, size_t layer) {
  const LayerOps& ops = ops_.layers[layer];
  const GoingOn rows = going_on(layer);
  for_rows(thread, Phase::other, rows.rows, [&](int64_t begin, int64_t end) {
    add_to_hidden(rows.hidden, ops.output.bias, ops.post_attention_norm, begin, end);
    kernels_.rms_norm(rows.hidden + begin * embedding_, embedding_, ops.ffn_norm, plan_.model.norm_epsilon, end - begin,
                      embedding_, normed_.data() + begin * embedding_, embedding_);
    prepare_input(normed_.data(), rows.rows, embedding_, begin, end, {&ops.gate, &ops.up}, rows.bad);
  });
}

void ForwardPass::activate(int thread, size_t layer) {
  const LayerOps& ops = ops_.layers[layer];
  const int64_t hidden = ops.gate.weight->rows;
  const GoingOn rows = going_on(layer);
  for_rows(thread, Phase::other, rows.rows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* gate = gate_.data() + row * hidden;
      float* up = up_.data() + row * hidden;
      if (ops.gate.bias != nullptr) kernels_.add(gate, ops.gate.bias, hidden);
      if (ops.up.bias != nullptr) kernels_.add(up, ops.up.bias, hidden);
      kernels_.gated_activation(ops.plan->ffn.activation, gate, up, hidden, gate);
    }
    prepare_input(gate_.data(), rows.rows, hidden, begin, end, {&ops.down}, rows.bad);
  });
}

void ForwardPass::layer_result(int thread, size_t layer) {
  const LayerOps& ops = ops_.layers[layer];
  const GoingOn rows = going_on(layer);
  for_rows(thread, Phase::other, rows.rows, [&](int64_t begin, int64_t end) {
    add_to_hidden(rows.hidden, ops.down.bias, ops.post_ffn_norm, begin, end);
    normalize_for_layer(layer + 1, begin, end);
  });
}

}  // namespace tokenmill
