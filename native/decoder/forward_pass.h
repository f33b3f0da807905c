// The forward pass of one step. All threads run the same list of phases (threads/work_phases.h) and take pieces of work
// from a counter. A piece is a set of rows, of weight panels or of attention blocks: sums
// over K are never cut, so who does what cannot change a bit.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "cache/kv_pages.h"
#include "contract/kernel_set.h"
#include "decoder/attention_schedule.h"
#include "decoder/layer_ops.h"
#include "decoder/step.h"
#include "decoder/workspace.h"
#include "threads/thread_pool.h"
#include "threads/work_phases.h"

namespace tokenmill {

class ForwardPass {
 public:
  // Everything given must outlive the object. Runs one step at a time. `thread_copies`: the copy of the weights that
  // each thread reads; empty when there is one.
  ForwardPass(const DecoderPlan& plan, const ModelOps& ops, const KernelSet& kernels, const KvPages& kv,
              ThreadPool& pool, const std::vector<int>& thread_copies);

  // `input` has passed StepChecker. Throws std::bad_alloc.
  StepResult run(const StepInput& input);

 private:
  // The input of a matmul phase as the kernels want it; shared by all phases.
  struct Quantized {
    ScratchBuffer<int8_t> q;
    ScratchBuffer<float> scale;
    ScratchBuffer<int16_t> half_sums;
    ScratchBuffer<int32_t> packed[kMaxActivationPackings];
  };
  // One of the formats that read a packing, and the widest input that it is made of; k = 0: the model needs none.
  struct PackingUse {
    WeightFormat format;
    int64_t k = 0;
  };
  struct MatmulJob {
    const PackedMatrix* weight;
    float* y;
  };
  struct ThreadScratch {
    ScratchBuffer<float> scores;
    ScratchBuffer<float> block_output;
    ScratchBuffer<float> state_output;
    std::vector<float> block_max, block_sum, state_max, state_sum;
    std::vector<int32_t> key_begin, key_end;
    std::vector<uint8_t> file_row;
    int64_t next_phase = 0;
    int weight_copy = 0;
  };
  // Row-indexed facts of the batch.
  struct RowInfo {
    int32_t sequence;
    int32_t position;
  };

  // The rows that go on after a layer's attention: all of them, but after the last one only those that are sampled,
  // side by side.
  struct GoingOn {
    float* hidden;     // [rows][embedding]
    float* attention;  // [rows][query_dim]
    int64_t rows;
    uint8_t* bad;
  };

  void prepare(const StepInput& input);
  void run_thread(int thread);
  void run_layer(int thread, size_t layer);

  // Phases, run by every thread. In forward_pass.cpp:
  void embed(int thread);
  void attention_inputs(int thread, size_t layer);
  void normalize_sampled_rows(int thread);
  void sample_tokens(int thread);
  void matmul(int thread, const MatmulJob* jobs, int count, const float* x, int64_t rows, int64_t k);
  // In forward_feed_forward.cpp:
  void attention_result(int thread, size_t layer);
  void feed_forward_input(int thread, size_t layer);
  void activate(int thread, size_t layer);
  void layer_result(int thread, size_t layer);
  GoingOn going_on(size_t layer);
  // In forward_attention.cpp:
  void attend(int thread, size_t layer);
  void attend_unit(ThreadScratch& scratch, size_t layer, const AttentionSchedule& schedule, const AttentionUnit& unit,
                   int32_t kv_head);
  void attend_block(ThreadScratch& scratch, size_t layer, const QueryTile& tile, int32_t block, int32_t kv_head,
                    float* max, float* sum, float* output);
  void fold_split_row(int thread, size_t layer, const QueryTile& tile, int64_t row);

  // Runs the thread's next phase and adds its wall time to `phase`'s.
  template <class Work>
  void run_phase(int thread, Phase phase, int64_t total, int64_t piece, Work work);
  template <class Work>
  void for_rows(int thread, Phase phase, int64_t rows, Work work);
  // Makes rows [begin, end) of x ([rows][k]) what `readers` read: quantizes and packs them, or only looks for values
  // that are not finite; marks such rows.
  void prepare_input(const float* x, int64_t rows, int64_t k, int64_t begin, int64_t end,
                     std::initializer_list<const Linear*> readers, uint8_t* bad);
  // `packed` is what matrices of that format read; null where they have no packing.
  Activations activations(const float* x, int64_t rows, int64_t k, const int32_t* packed) const;
  const int32_t* packed_for(WeightFormat format) const;
  void note_packing(const Linear& linear);
  void add_to_hidden(float* hidden, const float* bias, const float* norm, int64_t begin, int64_t end);
  void normalize_for_layer(size_t layer, int64_t begin, int64_t end);
  void store_row(size_t layer, int64_t row, const float* key, const float* value);

  const DecoderPlan& plan_;
  const ModelOps& ops_;
  const KernelSet& kernels_;
  const KvPages& kv_;
  ThreadPool& pool_;
  int64_t embedding_;
  int64_t max_query_dim_ = 0;
  int64_t max_kv_dim_ = 0;
  int64_t max_head_dim_ = 0;
  int64_t max_hidden_ = 0;
  int64_t rope_width_ = 0;  // floats of all tables of one row

  WorkPhases phases_;
  std::vector<AttentionSchedule> schedules_;
  std::vector<ThreadScratch> threads_;
  std::vector<RowInfo> rows_;
  std::vector<uint8_t> row_bad_;         // a non-finite value was met in this row
  std::vector<uint8_t> sample_bad_;      // the same, for rows of sample_rows
  std::vector<uint8_t> row_flags_;       // what the last quantization said
  ScratchBuffer<float> hidden_;          // [T][embedding], the residual stream
  ScratchBuffer<float> last_hidden_;     // [R][embedding]: the sampled rows from the last attention on
  ScratchBuffer<float> last_attention_;  // [R][query_dim]
  ScratchBuffer<float> normed_;          // [T][embedding]
  ScratchBuffer<float> query_;           // [T][query_dim]; after the attention phase: its result
  ScratchBuffer<float> grouped_;         // [kv head][T][group][head_dim]: queries as attention reads them
  ScratchBuffer<float> key_;             // [T][kv_dim]
  ScratchBuffer<float> value_;           // [T][kv_dim]
  ScratchBuffer<float> projected_;       // [T][embedding]: what is added to the residual stream
  ScratchBuffer<float> gate_;            // [T][hidden]
  ScratchBuffer<float> up_;              // [T][hidden]
  ScratchBuffer<float> rope_cos_;        // [T][rope_width]
  ScratchBuffer<float> rope_sin_;
  ScratchBuffer<float> partial_max_;  // results of single blocks of split tiles: [KV head][block][query]
  ScratchBuffer<float> partial_sum_;
  ScratchBuffer<float> partial_output_;
  ScratchBuffer<float> logits_;
  Quantized quantized_;
  PackingUse packing_uses_[kMaxActivationPackings];

  const StepInput* input_ = nullptr;
  StepResult* result_ = nullptr;
  float* logits_out_ = nullptr;
  std::atomic<bool> out_of_memory_{false};  // set inside a phase, read after the run
  std::chrono::steady_clock::time_point phase_start_;
};

template <class Work>
void ForwardPass::run_phase(int thread, Phase phase, int64_t total, int64_t piece, Work work) {
  phases_.run(threads_[static_cast<size_t>(thread)].next_phase++, total, piece, work);
  if (thread != 0) return;
  const auto now = std::chrono::steady_clock::now();
  result_->phase_seconds[static_cast<int>(phase)] += std::chrono::duration<double>(now - phase_start_).count();
  phase_start_ = now;
}

template <class Work>
void ForwardPass::for_rows(int thread, Phase phase, int64_t rows, Work work) {
  run_phase(thread, phase, rows, even_piece(rows, pool_.size()), work);
}

}  // namespace tokenmill
