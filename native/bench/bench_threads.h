// Measuring: the engine's threads, pieces of work from a counter as in a step, and repeated runs.
#pragma once
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "threads/thread_pool.h"
#include "threads/work_phases.h"
#include "weights/memory_policy.h"

namespace tokenmill {

class BenchThreads {
 public:
  // `cpus` as for ThreadPool, which throws; memory that is measured lies on `nodes`, page by page when there are
  // several.
  explicit BenchThreads(int threads, const std::vector<CpuSet>& cpus = {}, NodeSet nodes = {})
      : pool_(threads, cpus), nodes_(std::move(nodes)) {}

  int size() const { return pool_.size(); }
  const NodeSet& nodes() const { return nodes_; }

  // Calls work(thread, begin, end) for pieces of [0, total) on all threads; returns the wall seconds.
  template <class Work>
  double time(int64_t total, int64_t piece, Work work) {
    phases_.reset(1);
    const auto start = std::chrono::steady_clock::now();
    pool_.run([&](int thread) {
      phases_.run(0, total, piece, [&](int64_t begin, int64_t end) { work(thread, begin, end); });
    });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  ThreadPool pool_;
  WorkPhases phases_;
  NodeSet nodes_;
};

// At least so many runs, and as many more as fit into so many seconds.
struct Repeats {
  int least = 5;
  double seconds = 0.2;
};

// Seconds of each run; `run` returns its own. One run more goes before, to warm caches, clocks and threads up.
template <class Run>
std::vector<double> repeat(const Repeats& repeats, Run run) {
  constexpr int kMost = 1000;
  std::vector<double> seconds;
  double total = run();
  for (int i = 0; i < repeats.least || (total < repeats.seconds && i < kMost); ++i) {
    seconds.push_back(run());
    total += seconds.back();
  }
  return seconds;
}

}  // namespace tokenmill
