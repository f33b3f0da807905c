#include "decoder/decoder.h"

#include <stdexcept>
#include <utility>

namespace tokenmill {
namespace {

std::vector<KvPages::LayerShape> kv_shapes(const DecoderPlan& plan) {
  std::vector<KvPages::LayerShape> shapes;
  shapes.reserve(plan.layers.size());
  for (const LayerPlan& layer : plan.layers) {
    shapes.push_back({layer.attention.kv_head_count, layer.attention.head_dim});
  }
  return shapes;
}

Placement checked(Placement placement, int threads) {
  placement.check(threads);
  return placement;
}

}  // namespace

// The plan is checked first: every later member relies on its sizes.
Decoder::Decoder(DecoderPlan plan, const KernelSet& kernels, int threads, Placement placement)
    : plan_(std::move(plan)),
      placement_(checked(std::move(placement), threads)),
      kernels_(kernels),
      weights_(kernels, check_plan(plan_), placement_.weight_copies, placement_.expected_weight_bytes),
      kv_(kv_shapes(plan_)),
      pool_(threads, placement_.thread_cpus) {}

uint64_t Decoder::load_tensor(const std::string& name, WeightFormat format, int64_t rows, int64_t k,
                              const TensorSource& source) {
  if (forward_ != nullptr) throw std::invalid_argument("loading is finished");
  return weights_.load(pool_, name, format, rows, k, source);
}

void Decoder::finish_loading() {
  weights_.check_complete();
  ops_ = resolve_model(plan_, weights_);
  forward_ = std::make_unique<ForwardPass>(plan_, ops_, kernels_, kv_, pool_, placement_.thread_copies);
}

uint64_t Decoder::allocate_kv(int32_t pages) {
  if (pages < 1) throw std::invalid_argument("pages must be at least 1");
  checker_.reset();
  kv_.allocate(pages, placement_.kv_nodes);
  checker_.emplace(StepLimits{plan_.model.vocab_size, plan_.context_length, pages});
  return kv_.page_bytes() * static_cast<uint64_t>(pages);
}

void Decoder::zero_pages(std::span<const int32_t> pages) {
  for (const int32_t page : pages) {
    if (page < 0 || page >= kv_.page_count()) {
      throw std::invalid_argument("page " + std::to_string(page) + " of " + std::to_string(kv_.page_count()));
    }
  }
  for (const int32_t page : pages) kv_.zero(page);
}

StepResult Decoder::step(const StepInput& input) {
  if (forward_ == nullptr) throw std::invalid_argument("the weights are not loaded");
  if (!checker_) throw std::invalid_argument("there are no KV pages");
  checker_->check(input);
  return forward_->run(input);
}

}  // namespace tokenmill
