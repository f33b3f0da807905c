// Times the matrix products of a kernel set on one thread, next to the limits of the machine measured in the same run:
// the read bandwidth of one thread and the rate of the multiply instruction.
// Usage: matmul_bench [set] [format] [rows] [k]. Defaults: the best usable set, all formats, 4096 x 4096.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "dispatch/compare_sets.h"
#include "dispatch/detect_cpu.h"
#include "dispatch/kernel_registry.h"
#include "dispatch/select_kernels.h"
#include "dispatch/test_data.h"

namespace {

using tokenmill::Activations;
using tokenmill::KernelSet;
using tokenmill::PackedMatrix;
using tokenmill::WeightFormat;

constexpr int64_t kTokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64, 128, 512};
constexpr double kSecondsPerPoint = 0.25;

// Processor time of this thread, so that other programs on the machine matter less.
double seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The fastest of repeated runs, at least three and about kSecondsPerPoint altogether.
template <typename Run>
double best_time(const Run& run) {
  double best = 1e9;
  double total = 0;
  for (int i = 0; i < 3 || total < kSecondsPerPoint; ++i) {
    const double start = seconds();
    run();
    const double taken = seconds() - start;
    best = std::min(best, taken);
    total += taken;
  }
  return best;
}

// Memory in huge pages where the system has them.
class HugeBytes {
 public:
  explicit HugeBytes(uint64_t bytes) : bytes_((bytes + kHuge - 1) / kHuge * kHuge) {
    data_ = static_cast<uint8_t*>(std::aligned_alloc(kHuge, bytes_));
    if (data_ == nullptr) {
      std::abort();
    }
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 1, bytes_);
  }
  HugeBytes(const HugeBytes&) = delete;
  HugeBytes& operator=(const HugeBytes&) = delete;
  ~HugeBytes() { std::free(data_); }
  uint8_t* data() const { return data_; }
  uint64_t size() const { return bytes_; }

 private:
  static constexpr uint64_t kHuge = 2U << 20;
  uint64_t bytes_;
  uint8_t* data_;
};

using Lanes = int64_t __attribute__((vector_size(32)));

// The best of one to eight streams read side by side.
template <int kStreams>
double read_rate(const HugeBytes& memory) {
  const auto* lanes = reinterpret_cast<const Lanes*>(memory.data());
  const uint64_t each = memory.size() / sizeof(Lanes) / kStreams;
  volatile int64_t keep = 0;
  const double time = best_time([&] {
    Lanes sum{};
    for (uint64_t i = 0; i < each; i += 4) {
      for (int s = 0; s < kStreams; ++s) {
        const Lanes* from = lanes + static_cast<uint64_t>(s) * each + i;
        sum += from[0] + from[1] + from[2] + from[3];
      }
    }
    keep = sum[0];
  });
  static_cast<void>(keep);
  return static_cast<double>(memory.size()) / time;
}

#if defined(__x86_64__)
// 32 products per instruction, no other work.
__attribute__((target("avx2"))) double maddubs_rate() {
  using Shorts = int16_t __attribute__((vector_size(32)));
  using Bytes = char __attribute__((vector_size(32)));
  constexpr int kSteps = 1 << 22;
  constexpr int kChains = 12;
  const double time = best_time([&] {
    Bytes w{};
    for (int step = 0; step < kSteps; ++step) {
      for (int i = 0; i < kChains; ++i) {
        Shorts product;
        __asm__ volatile("vpmaddubsw %1, %1, %0" : "=x"(product) : "x"(w));
      }
    }
  });
  return 32.0 * kChains * kSteps / time;
}
#endif

struct Problem {
  const KernelSet& set;
  WeightFormat format;
  int64_t rows;
  int64_t k;
};

void run_format(const Problem& problem, double bandwidth, double products) {
  const auto& [set, format, rows, k] = problem;
  tokenmill::TestRandom random(1);
  const uint64_t panel_bytes = set.panel_bytes(format, k);
  const int64_t panels = (rows + set.panel_rows - 1) / set.panel_rows;
  // Copies of the matrix, so that one token always reads from memory and not from a cache.
  constexpr uint64_t kColdBytes = 192U << 20;
  const uint64_t matrix_bytes = static_cast<uint64_t>(panels) * panel_bytes;
  const uint64_t copies = std::max<uint64_t>(1, kColdBytes / matrix_bytes);
  const HugeBytes packed(copies * matrix_bytes);
  const std::vector<uint8_t> panel_rows =
      random_weights(random, tokenmill::ValueKind::plain, format, set.panel_rows, k);
  for (uint64_t i = 0; i < copies * static_cast<uint64_t>(panels); ++i) {
    set.pack_panel(format, panel_rows.data(), set.panel_rows, k, packed.data() + i * panel_bytes);
  }
  for (const int64_t tokens : kTokens) {
    const std::vector<float> x = random_floats(random, tokenmill::ValueKind::plain, tokens * k);
    std::vector<int8_t> q(x.size());
    std::vector<float> scale(x.size() / tokenmill::kGroupSize);
    std::vector<int16_t> half_sums(x.size() / tokenmill::kHalfGroupSize);
    std::vector<uint8_t> nonfinite(static_cast<size_t>(tokens));
    set.quantize_rows(x.data(), k, tokens, k, {q.data(), scale.data(), half_sums.data()}, nonfinite.data());
    const Activations activations{tokens, k, x.data(), q.data(), scale.data(), half_sums.data()};
    std::vector<float> y(static_cast<size_t>(tokens * rows));
    uint64_t copy = 0;
    const double time = best_time([&] {
      const PackedMatrix w{format, rows, k, packed.data() + (copy++ % copies) * matrix_bytes, panel_bytes};
      set.matmul[static_cast<int>(format)](w, activations, 0, panels, y.data(), rows);
    });
    const double rate = static_cast<double>(tokens * rows * k) / time;
    const double read = static_cast<double>(matrix_bytes) / time;
    std::printf("%-6s %4lld tokens %8.3f ms %7.1f GMAC/s %5.1f %% of products %6.2f GB/s %5.1f %% of bandwidth\n",
                tokenmill::format_info(format).name, static_cast<long long>(tokens), time * 1e3, rate * 1e-9,
                100 * rate / products, read * 1e-9, 100 * read / bandwidth);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto available = tokenmill::detect_cpu_features();
  const KernelSet* set = nullptr;
  for (const KernelSet* candidate : tokenmill::kernel_sets()) {
    const bool usable = tokenmill::missing_features(*candidate, available).empty();
    if (usable &&
        (argc > 1 && std::string(argv[1]) != "best" ? std::string(argv[1]) == candidate->name : set == nullptr)) {
      set = candidate;
    }
  }
  if (set == nullptr) {
    std::fprintf(stderr, "no such set, or this CPU cannot run it\n");
    return 2;
  }
  double bandwidth = 0;
  {
    const HugeBytes memory(512U << 20);
    bandwidth = std::max({read_rate<1>(memory), read_rate<2>(memory), read_rate<4>(memory), read_rate<8>(memory)});
  }
  double products = 1;
#if defined(__x86_64__)
  products = maddubs_rate();
#endif
  std::printf("%s, one thread: reads %.1f GB/s, %.1f G products/s by AVX2\n", set->name, bandwidth * 1e-9,
              products * 1e-9);
  const int64_t rows = argc > 3 ? std::atoll(argv[3]) : 4096;
  const int64_t k = argc > 4 ? std::atoll(argv[4]) : 4096;
  for (int i = 0; i < tokenmill::kWeightFormatCount; ++i) {
    const auto format = static_cast<WeightFormat>(i);
    if (argc > 2 && std::string(argv[2]) != "all" && std::string(argv[2]) != tokenmill::format_info(format).name) {
      continue;
    }
    run_format({*set, format, rows, k}, bandwidth, products);
  }
  return 0;
}
