// Anonymous memory for weights and KV pages, in huge pages where the kernel grants them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tokenmill {

constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

// One zeroed anonymous mapping whose start is aligned to a huge page and for which huge pages are advised.
class HugeRegion {
 public:
  HugeRegion() = default;
  // `reserve_only`: the kernel need not have the memory at hand for all of it (parts may stay untouched).
  // Throws std::bad_alloc when the mapping is refused.
  HugeRegion(uint64_t bytes, bool reserve_only);
  ~HugeRegion();
  HugeRegion(HugeRegion&& other) noexcept;
  HugeRegion& operator=(HugeRegion&& other) noexcept;
  HugeRegion(const HugeRegion&) = delete;
  HugeRegion& operator=(const HugeRegion&) = delete;

  uint8_t* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

  // Bytes of this region that are in huge pages now, from /proc/self/smaps; 0 where that cannot be read.
  uint64_t huge_bytes() const;

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
  uint8_t* mapping_ = nullptr;  // what munmap needs: the aligned region lies inside it
  uint64_t mapping_bytes_ = 0;
};

// Hands out 64-byte aligned pieces of large regions, one after another, for as long as it lives. A region's untouched
// end costs address space only, so small tensors share huge pages and nothing but the last page of a region is wasted.
class HugeArena {
 public:
  uint8_t* allocate(uint64_t bytes);
  uint64_t huge_bytes() const;

 private:
  std::vector<HugeRegion> regions_;
  uint64_t used_ = 0;  // of the last region
};

}  // namespace tokenmill
