#include "decoder/forward_pass.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "dispatch/dequantize.h"

namespace tokenmill {
namespace {

// Calls of run_phase() in run_thread() and in run_layer().
constexpr int64_t kPhasesOutsideLayers = 4;
constexpr int64_t kPhasesPerLayer = 10;

// The largest magnitude that fp16 rounding leaves finite is just below 65520.
constexpr float kHalfLimit = 65520.0F;

bool all_below(const float* x, int64_t n, float limit) {
  // A NaN's and an infinity's bits compare above those of every finite limit once the sign is gone.
  const uint32_t bound = std::bit_cast<uint32_t>(limit);
  uint32_t outside = 0;
  for (int64_t i = 0; i < n; ++i) outside |= (std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU) >= bound ? 1U : 0U;
  return outside == 0;
}

bool all_finite(const float* x, int64_t n) { return all_below(x, n, std::bit_cast<float>(0x7F800000U)); }

}  // namespace

ForwardPass::ForwardPass(const DecoderPlan& plan, const ModelOps& ops, const KernelSet& kernels, const KvPages& kv,
                         ThreadPool& pool, const std::vector<int>& thread_copies)
    : plan_(plan), ops_(ops), kernels_(kernels), kv_(kv), pool_(pool), embedding_(plan.model.embedding_dim) {
  int32_t max_group = 1;
  for (const LayerPlan& layer : plan.layers) {
    const AttentionPlan& attention = layer.attention;
    max_query_dim_ = std::max<int64_t>(max_query_dim_, int64_t{attention.head_count} * attention.head_dim);
    max_kv_dim_ = std::max<int64_t>(max_kv_dim_, int64_t{attention.kv_head_count} * attention.head_dim);
    max_hidden_ = std::max<int64_t>(max_hidden_, layer.ffn.hidden);
    max_group = std::max(max_group, attention.head_count / attention.kv_head_count);
    max_head_dim_ = std::max<int64_t>(max_head_dim_, attention.head_dim);
  }
  for (const RopeTable& rope : ops.ropes) rope_width_ += rope.pairs();
  for (const AttentionGeometry& geometry : ops.geometries) schedules_.emplace_back(geometry);
  note_packing(ops.output);
  for (const LayerOps& layer : ops.layers) {
    for (const Linear* linear :
         {&layer.query, &layer.key, &layer.value, &layer.output, &layer.gate, &layer.up, &layer.down}) {
      note_packing(*linear);
    }
  }
  const int32_t queries = max_tile_queries(max_group);
  threads_.resize(static_cast<size_t>(pool.size()));
  for (size_t i = 0; i < thread_copies.size(); ++i) threads_[i].weight_copy = thread_copies[i];
  for (ThreadScratch& scratch : threads_) {
    scratch.scores.reserve(int64_t{queries} * kAttentionBlockTokens);
    scratch.block_output.reserve(int64_t{queries} * max_head_dim_);
    scratch.state_output.reserve(int64_t{queries} * max_head_dim_);
    const size_t count = static_cast<size_t>(queries);
    scratch.block_max.resize(count);
    scratch.block_sum.resize(count);
    scratch.state_max.resize(count);
    scratch.state_sum.resize(count);
    scratch.key_begin.resize(count);
    scratch.key_end.resize(count);
    scratch.file_row.resize(row_bytes(ops.token_embedding->format, static_cast<uint64_t>(embedding_)));
  }
}

void ForwardPass::note_packing(const Linear& linear) {
  const int32_t packing = kernels_.activation_packing(linear.weight->format);
  if (packing < 0) return;
  PackingUse& use = packing_uses_[packing];
  use = {linear.weight->format, std::max(use.k, linear.weight->k)};
}

void ForwardPass::prepare(const StepInput& input) {
  const int64_t rows = input.rows();
  const int64_t samples = static_cast<int64_t>(input.sample_rows.size());
  const int64_t matmul_rows = std::max(rows, samples);
  hidden_.reserve(rows * embedding_);
  normed_.reserve(matmul_rows * embedding_);
  query_.reserve(rows * max_query_dim_);
  grouped_.reserve(rows * max_query_dim_);
  key_.reserve(rows * max_kv_dim_);
  value_.reserve(rows * max_kv_dim_);
  last_hidden_.reserve(samples * embedding_);
  last_attention_.reserve(samples * max_query_dim_);
  projected_.reserve(matmul_rows * embedding_);
  gate_.reserve(matmul_rows * max_hidden_);
  up_.reserve(matmul_rows * max_hidden_);
  rope_cos_.reserve(rows * rope_width_);
  rope_sin_.reserve(rows * rope_width_);
  const int64_t widest = matmul_rows * std::max({embedding_, max_query_dim_, max_hidden_});
  quantized_.q.reserve(widest);
  quantized_.scale.reserve(widest / kGroupSize);
  quantized_.half_sums.reserve(widest / kHalfGroupSize);
  for (int i = 0; i < kMaxActivationPackings; ++i) {
    const PackingUse& use = packing_uses_[i];
    if (use.k > 0) {
      quantized_.packed[i].reserve(kernels_.packed_activation_words(use.format, matmul_rows, use.k));
    }
  }
  row_bad_.assign(static_cast<size_t>(rows), 0);
  row_flags_.assign(static_cast<size_t>(matmul_rows), 0);
  sample_bad_.assign(static_cast<size_t>(samples), 0);

  rows_.resize(static_cast<size_t>(rows));
  for (int32_t s = 0; s < input.sequences(); ++s) {
    const int32_t begin = input.starts[static_cast<size_t>(s)];
    for (int32_t row = begin; row < input.starts[static_cast<size_t>(s) + 1]; ++row) {
      rows_[static_cast<size_t>(row)] = {s, input.positions[static_cast<size_t>(s)] + (row - begin)};
    }
  }
  int64_t partials = 0;
  for (AttentionSchedule& schedule : schedules_) {
    schedule.build(input, pool_.size());
    partials = std::max(partials, schedule.partial_count());
  }
  partial_max_.reserve(partials);
  partial_sum_.reserve(partials);
  partial_output_.reserve(partials * max_head_dim_);
  phases_.reset(kPhasesOutsideLayers + kPhasesPerLayer * static_cast<int64_t>(ops_.layers.size()));
}

StepResult ForwardPass::run(const StepInput& input) {
  StepResult result;
  prepare(input);
  const size_t samples = input.sample_rows.size();
  const size_t logit_count = samples * static_cast<size_t>(plan_.model.vocab_size);
  if (input.return_logits) result.logits.reset(new float[std::max<size_t>(logit_count, 1)]);
  // Drawing changes the logits, so those that are handed out need storage of their own.
  if (!input.return_logits || !input.samplers.empty()) logits_.reserve(static_cast<int64_t>(logit_count));
  logits_out_ = input.return_logits && input.samplers.empty() ? result.logits.get() : logits_.data();
  if (!input.samplers.empty()) result.sampled.resize(samples);
  input_ = &input;
  result_ = &result;
  out_of_memory_.store(false, std::memory_order_relaxed);

  pool_.run([this](int thread) { run_thread(thread); });

  if (out_of_memory_.load(std::memory_order_relaxed)) throw std::bad_alloc();
  result.nonfinite.assign(static_cast<size_t>(input.sequences()), 0);
  for (size_t row = 0; row < rows_.size(); ++row) {
    result.nonfinite[static_cast<size_t>(rows_[row].sequence)] |= row_bad_[row];
  }
  const auto sequence_of_sample = [&](size_t i) {
    return static_cast<size_t>(rows_[static_cast<size_t>(input.sample_rows[i])].sequence);
  };
  for (size_t i = 0; i < samples; ++i) result.nonfinite[sequence_of_sample(i)] |= sample_bad_[i];
  for (size_t i = 0; i < result.sampled.size(); ++i) {
    if (result.nonfinite[sequence_of_sample(i)] != 0) result.sampled[i] = SampledToken{};
  }
  return result;
}

void ForwardPass::run_thread(int thread) {
  if (thread == 0) phase_start_ = std::chrono::steady_clock::now();
  threads_[static_cast<size_t>(thread)].next_phase = 0;
  embed(thread);
  for (size_t layer = 0; layer < ops_.layers.size(); ++layer) run_layer(thread, layer);
  const int64_t samples = static_cast<int64_t>(input_->sample_rows.size());
  normalize_sampled_rows(thread);
  const MatmulJob job{ops_.output.weight, logits_out_};
  matmul(thread, &job, samples > 0 ? 1 : 0, normed_.data(), samples, embedding_);
  sample_tokens(thread);
}

void ForwardPass::run_layer(int thread, size_t layer) {
  const LayerOps& ops = ops_.layers[layer];
  const int64_t query_dim = ops.query.weight->rows;
  const int64_t hidden = ops.gate.weight->rows;

  const MatmulJob inputs[] = {
      {ops.query.weight, query_.data()}, {ops.key.weight, key_.data()}, {ops.value.weight, value_.data()}};
  matmul(thread, inputs, 3, normed_.data(), input_->rows(), embedding_);
  attention_inputs(thread, layer);
  attend(thread, layer);
  attention_result(thread, layer);
  const GoingOn going = going_on(layer);
  const int jobs = going.rows > 0 ? 1 : 0;
  const MatmulJob attention_output{ops.output.weight, projected_.data()};
  matmul(thread, &attention_output, jobs, going.attention, going.rows, query_dim);
  feed_forward_input(thread, layer);
  const MatmulJob gate_and_up[] = {{ops.gate.weight, gate_.data()}, {ops.up.weight, up_.data()}};
  matmul(thread, gate_and_up, 2 * jobs, normed_.data(), going.rows, embedding_);
  activate(thread, layer);
  const MatmulJob down{ops.down.weight, projected_.data()};
  matmul(thread, &down, jobs, gate_.data(), going.rows, hidden);
  layer_result(thread, layer);
}

void ForwardPass::matmul(int thread, const MatmulJob* jobs, int count, const float* x, int64_t rows, int64_t k) {
  const auto panels_of = [&](const MatmulJob& job) {
    return (job.weight->rows + kernels_.panel_rows - 1) / kernels_.panel_rows;
  };
  const int copy = threads_[static_cast<size_t>(thread)].weight_copy;
  int64_t total = 0;
  for (int i = 0; i < count; ++i) total += panels_of(jobs[i]);
  // The panels of all jobs are numbered through; a piece may end one job and begin the next.
  const int64_t piece = even_piece(total, pool_.size());
  run_phase(thread, Phase::matmul, total, piece, [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // number of the job's first panel
    for (int i = 0; i < count; ++i) {
      const int64_t panels = panels_of(jobs[i]);
      const int64_t from = std::max(begin, first) - first;
      const int64_t to = std::min(end - first, panels);
      if (from < to) {
        const PackedMatrix& weight = jobs[i].weight[copy];
        kernels_.matmul[static_cast<int>(weight.format)](weight, activations(x, rows, k, packed_for(weight.format)),
                                                         from, to, jobs[i].y, weight.rows);
      }
      first += panels;
    }
  });
}

Activations ForwardPass::activations(const float* x, int64_t rows, int64_t k, const int32_t* packed) const {
  return {rows, k, x, quantized_.q.data(), quantized_.scale.data(), quantized_.half_sums.data(), packed};
}

const int32_t* ForwardPass::packed_for(WeightFormat format) const {
  const int32_t packing = kernels_.activation_packing(format);
  return packing < 0 ? nullptr : quantized_.packed[packing].data();
}

void ForwardPass::prepare_input(const float* x, int64_t rows, int64_t k, int64_t begin, int64_t end,
                                std::initializer_list<const Linear*> readers, uint8_t* bad) {
  const bool quantize =
      std::any_of(readers.begin(), readers.end(), [](const Linear* reader) { return reader->needs_quantized_input(); });
  if (!quantize) {
    for (int64_t row = begin; row < end; ++row) bad[row] |= all_finite(x + row * k, k) ? 0 : 1;
    return;
  }
  const int64_t groups = k / kGroupSize;
  const QuantizedOut out{quantized_.q.data() + begin * k, quantized_.scale.data() + begin * groups,
                         quantized_.half_sums.data() + begin * groups * 2};
  kernels_.quantize_rows(x + begin * k, k, end - begin, k, out, row_flags_.data() + begin);
  for (int64_t row = begin; row < end; ++row) bad[row] |= row_flags_[static_cast<size_t>(row)];
  uint32_t packed = 0;  // one bit per packing
  for (const Linear* reader : readers) {
    const WeightFormat format = reader->weight->format;
    const int32_t packing = kernels_.activation_packing(format);
    if (packing < 0 || ((packed >> packing) & 1U) != 0) continue;
    packed |= 1U << packing;
    kernels_.pack_activations(format, activations(x, rows, k, nullptr), begin, end, quantized_.packed[packing].data());
  }
}

void ForwardPass::normalize_for_layer(size_t layer, int64_t begin, int64_t end) {
  if (layer == ops_.layers.size()) return;  // after the last layer only sampled rows are normalized
  const LayerOps& ops = ops_.layers[layer];
  kernels_.rms_norm(hidden_.data() + begin * embedding_, embedding_, ops.attention_norm, plan_.model.norm_epsilon,
                    end - begin, embedding_, normed_.data() + begin * embedding_, embedding_);
  prepare_input(normed_.data(), input_->rows(), embedding_, begin, end, {&ops.query, &ops.key, &ops.value},
                row_bad_.data());
}

void ForwardPass::embed(int thread) {
  const PackedMatrix& table = ops_.token_embedding[threads_[static_cast<size_t>(thread)].weight_copy];
  std::vector<uint8_t>& file_row = threads_[static_cast<size_t>(thread)].file_row;
  const float scale = plan_.model.embedding_scale;
  for_rows(thread, Phase::other, input_->rows(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* out = hidden_.data() + row * embedding_;
      kernels_.unpack_row(table, input_->tokens[static_cast<size_t>(row)], file_row.data());
      dequantize_row(table.format, file_row.data(), embedding_, out);
      if (scale != 1.0F) {
        for (int64_t i = 0; i < embedding_; ++i) out[i] *= scale;
      }
      int64_t at = row * rope_width_;
      for (const RopeTable& rope : ops_.ropes) {
        rope.fill(rows_[static_cast<size_t>(row)].position, rope_cos_.data() + at, rope_sin_.data() + at);
        at += rope.pairs();
      }
    }
    normalize_for_layer(0, begin, end);
  });
}

void ForwardPass::attention_inputs(int thread, size_t layer) {
  const LayerOps& ops = ops_.layers[layer];
  const AttentionPlan& plan = ops.plan->attention;
  const float epsilon = plan_.model.norm_epsilon;
  const int64_t head_dim = plan.head_dim;
  const int64_t query_dim = plan.head_count * head_dim;
  const int64_t kv_dim = plan.kv_head_count * head_dim;
  const int64_t group_dim = query_dim / plan.kv_head_count;
  int64_t rope_at = 0;
  for (int32_t i = 0; i < ops.rope; ++i) rope_at += ops_.ropes[static_cast<size_t>(i)].pairs();

  for_rows(thread, Phase::other, input_->rows(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* query = query_.data() + row * query_dim;
      float* key = key_.data() + row * kv_dim;
      float* value = value_.data() + row * kv_dim;
      if (ops.query.bias != nullptr) kernels_.add(query, ops.query.bias, query_dim);
      if (ops.key.bias != nullptr) kernels_.add(key, ops.key.bias, kv_dim);
      if (ops.value.bias != nullptr) kernels_.add(value, ops.value.bias, kv_dim);
      if (ops.query_norm != nullptr) {
        kernels_.rms_norm(query, head_dim, ops.query_norm, epsilon, plan.head_count, head_dim, query, head_dim);
      }
      if (ops.key_norm != nullptr) {
        kernels_.rms_norm(key, head_dim, ops.key_norm, epsilon, plan.kv_head_count, head_dim, key, head_dim);
      }
      if (ops.rope >= 0) {
        const float* cos = rope_cos_.data() + row * rope_width_ + rope_at;
        const float* sin = rope_sin_.data() + row * rope_width_ + rope_at;
        kernels_.rope(query, plan.head_count, head_dim, plan.rope.rotary_dim, plan.rope.style, cos, sin);
        kernels_.rope(key, plan.kv_head_count, head_dim, plan.rope.rotary_dim, plan.rope.style, cos, sin);
      }
      if (!all_finite(query, query_dim) || !all_below(key, kv_dim, kHalfLimit) ||
          !all_below(value, kv_dim, kHalfLimit)) {
        row_bad_[static_cast<size_t>(row)] = 1;
      }
      store_row(layer, row, key, value);
      for (int64_t kv_head = 0; kv_head < plan.kv_head_count; ++kv_head) {
        std::memcpy(grouped_.data() + (kv_head * input_->rows() + row) * group_dim, query + kv_head * group_dim,
                    static_cast<size_t>(group_dim) * sizeof(float));
      }
    }
  });
}

void ForwardPass::normalize_sampled_rows(int thread) {
  const int64_t samples = static_cast<int64_t>(input_->sample_rows.size());
  for_rows(thread, Phase::other, samples, [&](int64_t begin, int64_t end) {
    kernels_.rms_norm(last_hidden_.data() + begin * embedding_, embedding_, ops_.output_norm, plan_.model.norm_epsilon,
                      end - begin, embedding_, normed_.data() + begin * embedding_, embedding_);
    prepare_input(normed_.data(), samples, embedding_, begin, end, {&ops_.output}, sample_bad_.data());
  });
}

void ForwardPass::sample_tokens(int thread) {
  const int64_t vocab = plan_.model.vocab_size;
  for_rows(thread, Phase::sampling, static_cast<int64_t>(sample_bad_.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const size_t at = static_cast<size_t>(i);
      float* logits = logits_out_ + i * vocab;
      if (ops_.output.bias != nullptr) kernels_.add(logits, ops_.output.bias, vocab);
      if (!all_finite(logits, vocab)) sample_bad_[at] = 1;
      if (input_->samplers.empty()) continue;
      if (input_->return_logits)
        std::memcpy(result_->logits.get() + i * vocab, logits, sizeof(float) * static_cast<size_t>(vocab));
      // The drawn token stands one position after the row that gives its logits.
      const uint64_t position = static_cast<uint64_t>(rows_[static_cast<size_t>(input_->sample_rows[at])].position) + 1;
      const TokenHistory history = input_->histories.empty() ? TokenHistory{} : input_->histories[at];
      try {
        result_->sampled[at] = sample(logits, plan_.model.vocab_size, *input_->samplers[at], history, position);
      } catch (const std::bad_alloc&) {
        out_of_memory_.store(true, std::memory_order_relaxed);
      }
    }
  });
}

}  // namespace tokenmill
