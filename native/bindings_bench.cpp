// The benchmarks' part of the Python module _native (src/tokenmill/_native.pyi): kernels, and the machine's limits.
#include "bindings_bench.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/attention_bench.h"
#include "bench/limits.h"
#include "bench/matmul_bench.h"
#include "bench/row_bench.h"
#include "dispatch/detect_cpu.h"
#include "dispatch/select_kernels.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tokenmill {
namespace {

Repeats checked_repeats(int least, double seconds) {
  if (least < 1 || least > 1000 || !std::isfinite(seconds) || seconds < 0 || seconds > 60) {
    throw std::invalid_argument("repeats must be 1 to 1000 and seconds 0 to 60");
  }
  return {least, seconds};
}

WeightFormat format_named(const std::string& name) {
  for (int i = 0; i < kWeightFormatCount; ++i) {
    if (name == kWeightFormats[i].name) return static_cast<WeightFormat>(i);
  }
  throw std::invalid_argument("weight format " + name + " is not supported");
}

// One kernel set on some threads, and the matrix or the keys and values that are being measured.
class PyKernelBench {
 public:
  PyKernelBench(const std::string& kernel_set, int threads, const std::optional<std::vector<CpuSet>>& cpus,
                const NodeSet& nodes) {
    const KernelSelection selection = select_kernel_set(kernel_set, detect_cpu_features());
    if (kernel_set.empty() || selection.set == nullptr) {
      throw std::invalid_argument(kernel_set.empty() ? "the kernel set has no name" : selection.error);
    }
    kernels_ = selection.set;
    threads_ = std::make_unique<BenchThreads>(threads, cpus.value_or(std::vector<CpuSet>{}), nodes);
  }

  std::vector<std::pair<uint64_t, std::vector<double>>> read(uint64_t bytes, const std::vector<int>& streams,
                                                             int repeats, double seconds) {
    const Repeats plan = checked_repeats(repeats, seconds);
    if (bytes < (1U << 20)) throw std::invalid_argument("at least a MiB must be read");
    drop();
    const nb::gil_scoped_release release;
    ReadBench bench(*threads_, bytes);
    std::vector<std::pair<uint64_t, std::vector<double>>> results;
    for (const int count : streams) {
      TimedWork timed = bench.run(count, plan);
      results.emplace_back(timed.amount, std::move(timed.seconds));
    }
    return results;
  }

  std::vector<std::tuple<std::string, std::string, uint64_t, std::vector<double>>> peaks(int repeats, double seconds) {
    const Repeats plan = checked_repeats(repeats, seconds);
    const nb::gil_scoped_release release;
    std::vector<std::tuple<std::string, std::string, uint64_t, std::vector<double>>> results;
    for (const PeakLoop* loop = kernels_->peak_loops; loop != nullptr && loop->run != nullptr; ++loop) {
      TimedWork timed = run_peak_loop(*threads_, *loop, plan);
      results.emplace_back(loop->quantity, loop->instructions, timed.amount, std::move(timed.seconds));
    }
    return results;
  }

  uint64_t prepare_matmul(const std::string& format, int64_t rows, int64_t k, int64_t most_tokens,
                          uint64_t cold_bytes) {
    const WeightFormat parsed = format_named(format);
    drop();
    const nb::gil_scoped_release release;
    matmul_ =
        std::make_unique<MatmulBench>(*kernels_, *threads_, MatmulBenchShape{parsed, rows, k, most_tokens}, cold_bytes);
    return matmul_->matrix_bytes();
  }
  std::string check_matmul(int64_t tokens) {
    MatmulBench& bench = prepared(matmul_);
    const nb::gil_scoped_release release;
    return bench.check(tokens);
  }
  std::vector<double> time_matmul(int64_t tokens, int repeats, double seconds) {
    const Repeats plan = checked_repeats(repeats, seconds);
    MatmulBench& bench = prepared(matmul_);
    const nb::gil_scoped_release release;
    return bench.run(tokens, plan);
  }

  nb::dict prepare_attention(int32_t context, int32_t tokens, int32_t kv_heads, int32_t group, int32_t head_dim,
                             uint64_t cold_bytes) {
    drop();
    {
      const nb::gil_scoped_release release;
      attention_ = std::make_unique<AttentionBench>(
          *kernels_, *threads_, AttentionBenchShape{context, tokens, kv_heads, group, head_dim}, cold_bytes);
    }
    nb::dict facts;
    facts["kv_bytes"] = attention_->kv_bytes();
    facts["multiply_adds"] = attention_->multiply_adds();
    facts["query_keys"] = attention_->query_keys();
    return facts;
  }
  std::string check_attention() {
    AttentionBench& bench = prepared(attention_);
    const nb::gil_scoped_release release;
    return bench.check();
  }
  std::vector<double> time_attention(int repeats, double seconds) {
    const Repeats plan = checked_repeats(repeats, seconds);
    AttentionBench& bench = prepared(attention_);
    const nb::gil_scoped_release release;
    return bench.run(plan);
  }

  std::pair<uint64_t, std::vector<double>> time_rows(const std::string& name, int64_t width, int repeats,
                                                     double seconds) {
    const Repeats plan = checked_repeats(repeats, seconds);
    const nb::gil_scoped_release release;
    TimedWork timed = run_row_function(*kernels_, name, width, plan);
    return {timed.amount, std::move(timed.seconds)};
  }

 private:
  // Memory of what was measured before is given back first.
  void drop() {
    matmul_.reset();
    attention_.reset();
  }
  template <class Bench>
  static Bench& prepared(const std::unique_ptr<Bench>& bench) {
    if (!bench) throw std::invalid_argument("nothing is prepared: call prepare_matmul or prepare_attention before");
    return *bench;
  }

  const KernelSet* kernels_ = nullptr;
  std::unique_ptr<BenchThreads> threads_;
  std::unique_ptr<MatmulBench> matmul_;
  std::unique_ptr<AttentionBench> attention_;
};

}  // namespace

void bind_benchmarks(nb::module_& m) {
  m.def("row_functions", &row_functions);
  nb::class_<PyKernelBench>(m, "KernelBench")
      .def(nb::init<const std::string&, int, const std::optional<std::vector<CpuSet>>&, const NodeSet&>(),
           "kernel_set"_a, nb::kw_only(), "threads"_a, "cpus"_a.none(), "nodes"_a)
      .def("read", &PyKernelBench::read, "nbytes"_a, "streams"_a, nb::kw_only(), "repeats"_a, "seconds"_a)
      .def("peaks", &PyKernelBench::peaks, nb::kw_only(), "repeats"_a, "seconds"_a)
      .def("prepare_matmul", &PyKernelBench::prepare_matmul, "format_name"_a, "rows"_a, "k"_a, nb::kw_only(),
           "most_tokens"_a, "cold_bytes"_a)
      .def("check_matmul", &PyKernelBench::check_matmul, "tokens"_a)
      .def("time_matmul", &PyKernelBench::time_matmul, "tokens"_a, nb::kw_only(), "repeats"_a, "seconds"_a)
      .def("prepare_attention", &PyKernelBench::prepare_attention, nb::kw_only(), "context"_a, "tokens"_a, "kv_heads"_a,
           "group"_a, "head_dim"_a, "cold_bytes"_a)
      .def("check_attention", &PyKernelBench::check_attention)
      .def("time_attention", &PyKernelBench::time_attention, nb::kw_only(), "repeats"_a, "seconds"_a)
      .def("time_rows", &PyKernelBench::time_rows, "name"_a, "width"_a, nb::kw_only(), "repeats"_a, "seconds"_a);
}

}  // namespace tokenmill
