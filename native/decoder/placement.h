// Where a model's threads and memory go. Decided outside (src/tokenmill/engine/placement.py); carried out here.
#pragma once
#include <cstdint>
#include <vector>

#include "threads/thread_pool.h"
#include "weights/memory_policy.h"

namespace tokenmill {

struct Placement {
  std::vector<CpuSet> thread_cpus;                // empty, or the CPUs that each thread may run on
  std::vector<int> thread_copies;                 // empty: all read copy 0; else the weight copy that each thread reads
  std::vector<NodeSet> weight_copies{NodeSet{}};  // the nodes of each copy's memory; at least one copy
  NodeSet kv_nodes;
  uint64_t expected_weight_bytes = 0;  // of one copy; sizes the regions, 0 where nobody knows

  // Throws std::invalid_argument when the parts contradict each other or `threads`.
  void check(int threads) const;
};

}  // namespace tokenmill
