// What this machine reaches at most: the rate of reading memory, and of a set's multiply-adds.
#pragma once
#include <cstdint>
#include <vector>

#include "bench/bench_threads.h"
#include "contract/kernel_set.h"
#include "weights/huge_memory.h"

namespace tokenmill {

struct TimedWork {
  uint64_t amount = 0;  // bytes or multiply-adds of one run
  std::vector<double> seconds;
};

// Reads `bytes` of memory, in huge pages where the system grants them, with all threads. Each thread reads `streams`
// (1, 2, 4, 8 or 16) places side by side, as a matrix product reads panels, and prefetches 8 KiB ahead in each.
// Throws std::invalid_argument for another number of streams, std::bad_alloc.
class ReadBench {
 public:
  ReadBench(BenchThreads& threads, uint64_t bytes);
  TimedWork run(int streams, const Repeats& repeats);

 private:
  BenchThreads& threads_;
  HugeRegion memory_;
};

TimedWork run_peak_loop(BenchThreads& threads, const PeakLoop& loop, const Repeats& repeats);

}  // namespace tokenmill
