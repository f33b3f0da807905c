// A model that is loaded and can run steps: plan, weights, KV pages and threads in one place.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_pages.h"
#include "contract/kernel_set.h"
#include "decoder/decoder_plan.h"
#include "decoder/forward_pass.h"
#include "decoder/layer_ops.h"
#include "decoder/placement.h"
#include "decoder/step.h"
#include "threads/thread_pool.h"
#include "weights/weight_store.h"

namespace tokenmill {

// One thread drives it. Methods throw std::invalid_argument for arguments out of range and for calls out of order
// (load tensors, finish_loading, allocate_kv, step), std::bad_alloc, and std::system_error from the operating system.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): there is one, and the pool wants cache lines of its own
class Decoder {
 public:
  Decoder(DecoderPlan plan, const KernelSet& kernels, int threads, Placement placement);

  uint64_t load_tensor(const std::string& name, WeightFormat format, int64_t rows, int64_t k,
                       const TensorSource& source);
  void finish_loading();
  uint64_t allocate_kv(int32_t pages);
  void zero_pages(std::span<const int32_t> pages);
  StepResult step(const StepInput& input);

  int32_t vocab_size() const { return plan_.model.vocab_size; }
  uint64_t kv_bytes_per_page() const { return kv_.page_bytes(); }
  uint64_t weight_bytes() const { return weights_.bytes(); }
  MemoryReport weight_report() const { return weights_.report(); }
  MemoryReport kv_report() const { return kv_.report(); }
  // Keeps weights and KV pages in memory; returns their bytes. Throws std::system_error when the kernel refuses.
  uint64_t lock_memory() const { return weights_.lock() + kv_.lock(); }

 private:
  DecoderPlan plan_;
  Placement placement_;
  const KernelSet& kernels_;
  WeightStore weights_;
  KvPages kv_;
  ThreadPool pool_;
  ModelOps ops_;
  std::unique_ptr<ForwardPass> forward_;  // null until loading is finished
  std::optional<StepChecker> checker_;    // absent until there are pages
};

}  // namespace tokenmill
