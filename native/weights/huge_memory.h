// Anonymous memory for weights and KV pages: on the NUMA nodes that were chosen, in huge pages where the kernel has
// some.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weights/memory_policy.h"
#include "weights/page_sizes.h"

namespace tokenmill {

// What some memory is made of. The two strings say why not more, and are empty when there is nothing to say.
struct MemoryReport {
  uint64_t pool_bytes = 0;         // in huge pages that the administrator reserved
  uint64_t transparent_bytes = 0;  // in transparent huge pages now
  std::string pool_refusal;
  std::string policy_refusal;          // the kernel's word against the NUMA policy
  std::map<int, uint64_t> node_bytes;  // a sample, scaled up; only where a policy was asked for

  void add(const MemoryReport& other);
};

// One zeroed anonymous mapping. Reserved huge pages are taken when there are enough for all of it; else it is aligned
// for transparent ones and these are advised.
class HugeRegion {
 public:
  HugeRegion() = default;
  // `reserve_only`: the kernel need not have the memory at hand for all of it (parts may stay untouched).
  // Throws std::bad_alloc when the mapping is refused.
  HugeRegion(uint64_t bytes, bool reserve_only, const NodeSet& nodes = {});
  ~HugeRegion();
  HugeRegion(HugeRegion&& other) noexcept;
  HugeRegion& operator=(HugeRegion&& other) noexcept;
  HugeRegion(const HugeRegion&) = delete;
  HugeRegion& operator=(const HugeRegion&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  MemoryReport report() const;

  // Brings the first `bytes` into memory and keeps them there. Throws std::system_error when the kernel refuses.
  void lock(uint64_t bytes) const;

 private:
  bool map_from_pool(uint64_t bytes, const NodeSet& nodes);

  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
  uint8_t* mapping_ = nullptr;  // what munmap needs: the aligned region lies inside it
  uint64_t mapping_bytes_ = 0;
  bool from_pool_ = false;
  bool placed_ = false;  // a NUMA policy was asked for
  std::string pool_refusal_;
  std::string policy_refusal_;
};

// Hands out 64-byte aligned pieces of large regions, one after another, for as long as it lives. A region's untouched
// end costs address space only, so small tensors share huge pages and nothing but the last page of a region is wasted.
class HugeArena {
 public:
  // `expected_bytes`: what will be asked for in all, so that reserved pages are taken for no more; 0 where unknown.
  HugeArena(NodeSet nodes, uint64_t expected_bytes);

  uint8_t* allocate(uint64_t bytes);
  MemoryReport report() const;
  // Locks what was handed out; returns its bytes. Throws std::system_error when the kernel refuses.
  uint64_t lock() const;

 private:
  struct Filled {
    HugeRegion region;
    uint64_t used = 0;
  };

  NodeSet nodes_;
  bool expected_is_known_;
  uint64_t expected_bytes_;  // that are still to come
  std::vector<Filled> regions_;
};

}  // namespace tokenmill
