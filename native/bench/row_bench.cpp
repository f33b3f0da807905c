#include "bench/row_bench.h"

#include <stdexcept>

#include "dispatch/compare_report.h"
#include "dispatch/test_data.h"
#include "threads/fp_environment.h"

namespace tokenmill {
namespace {

constexpr uint64_t kSeed = 20260103;
constexpr int64_t kRows = 8;
constexpr int64_t kHeadDim = 128;
constexpr int64_t kMostWidth = 1 << 20;
constexpr int kRunsAtOnce = 4;  // so that the clock's own time does not count

struct RowData {
  explicit RowData(int64_t row_width) : width(row_width) {
    TestRandom random(kSeed);
    x = random_floats(random, ValueKind::plain, kRows * width);
    y = random_floats(random, ValueKind::plain, kRows * width);
    out.resize(x.size());
    q.resize(x.size());
    scale.resize(x.size() / kGroupSize);
    half_sums.resize(x.size() / kHalfGroupSize);
    nonfinite.resize(kRows);
    pages.resize(unsigned_size(2 * kRows * width * kPageTokens));
  }

  int64_t width;
  std::vector<float> x, y, out, scale;
  std::vector<int8_t> q;
  std::vector<int16_t> half_sums;
  std::vector<uint8_t> nonfinite;
  std::vector<uint16_t> pages;
};

using RowFunction = void (*)(const KernelSet& kernels, RowData& data);

// Calls work(first element of a head) for each head of kHeadDim elements.
template <class Work>
void for_heads(const RowData& data, Work work) {
  for (int64_t at = 0; at < kRows * data.width; at += kHeadDim) work(at);
}

constexpr struct {
  const char* name;
  RowFunction run;
} kFunctions[] = {
    {"quantize_rows",
     [](const KernelSet& kernels, RowData& data) {
       kernels.quantize_rows(data.x.data(), data.width, kRows, data.width,
                             {data.q.data(), data.scale.data(), data.half_sums.data()}, data.nonfinite.data());
     }},
    {"rms_norm",
     [](const KernelSet& kernels, RowData& data) {
       kernels.rms_norm(data.x.data(), data.width, data.y.data(), 1e-5F, kRows, data.width, data.out.data(),
                        data.width);
     }},
    {"rope",
     [](const KernelSet& kernels, RowData& data) {
       // In place, again and again: factors of magnitude 1 keep the values in range.
       static const std::vector<float> cosines(kHeadDim / 2, 0.6F);
       static const std::vector<float> sines(kHeadDim / 2, 0.8F);
       for (int64_t row = 0; row < kRows; ++row) {
         kernels.rope(data.out.data() + row * data.width, data.width / kHeadDim, kHeadDim, kHeadDim, RopeStyle::half,
                      cosines.data(), sines.data());
       }
     }},
    {"gated_activation",
     [](const KernelSet& kernels, RowData& data) {
       kernels.gated_activation(Activation::silu, data.x.data(), data.y.data(), kRows * data.width, data.out.data());
     }},
    {"add",
     [](const KernelSet& kernels, RowData& data) { kernels.add(data.out.data(), data.y.data(), kRows * data.width); }},
    {"store_kv",
     [](const KernelSet& kernels, RowData& data) {
       for_heads(data, [&](int64_t at) {
         uint16_t* page = data.pages.data() + 2 * at * kPageTokens;
         kernels.store_kv(data.x.data() + at, data.y.data() + at, kHeadDim, 5, page, page + kHeadDim * kPageTokens);
       });
     }},
    {"attention_fold",
     [](const KernelSet& kernels, RowData& data) {
       for_heads(data, [&](int64_t at) {
         float max = 0.25F;
         float sum = 1.0F;
         kernels.attention_fold(&max, &sum, data.out.data() + at, 0.125F, 1.0F, data.y.data() + at, kHeadDim);
         data.scale[static_cast<size_t>(at / kGroupSize)] = sum;
       });
     }},
    {"attention_finish",
     [](const KernelSet& kernels, RowData& data) {
       for_heads(data, [&](int64_t at) {
         kernels.attention_finish(data.x.data() + at, 1.5F, kHeadDim, data.out.data() + at);
       });
     }},
};

}  // namespace

std::vector<std::string> row_functions() {
  std::vector<std::string> names;
  for (const auto& function : kFunctions) names.emplace_back(function.name);
  return names;
}

TimedWork run_row_function(const KernelSet& kernels, const std::string& name, int64_t width, const Repeats& repeats) {
  if (width < kHeadDim || width > kMostWidth || width % kHeadDim != 0) {
    throw std::invalid_argument("the width must be a multiple of 128, at most 1048576");
  }
  RowFunction run = nullptr;
  for (const auto& function : kFunctions) {
    if (name == function.name) run = function.run;
  }
  if (run == nullptr) throw std::invalid_argument("there is no row function " + name);
  RowData data(width);
  const ScopedFpEnvironment environment;
  TimedWork result;
  result.amount = unsigned_size(kRunsAtOnce * kRows * width);
  result.seconds = repeat(repeats, [&] {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRunsAtOnce; ++i) run(kernels, data);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  });
  return result;
}

}  // namespace tokenmill
