#include "weights/huge_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace tokenmill {
namespace {

// Address space, not memory: each region may leave half a huge page behind its last tensor, so there should be few.
constexpr uint64_t kArenaRegionBytes = uint64_t{256} << 20;

constexpr uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

}  // namespace

HugeRegion::HugeRegion(uint64_t bytes, bool reserve_only) {
  if (bytes == 0) return;
  if (bytes > std::numeric_limits<uint64_t>::max() / 2) throw std::bad_alloc();
  bytes_ = round_up(bytes, kHugePageBytes);
  mapping_bytes_ = bytes_ + kHugePageBytes;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (reserve_only ? MAP_NORESERVE : 0);
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<uint8_t*>(mapping);
  const uint64_t address = reinterpret_cast<uintptr_t>(mapping_);
  data_ = mapping_ + (round_up(address, kHugePageBytes) - address);
  // Only advice: a kernel without transparent huge pages answers with an error and serves small pages.
  madvise(data_, bytes_, MADV_HUGEPAGE);
}

HugeRegion::~HugeRegion() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

HugeRegion::HugeRegion(HugeRegion&& other) noexcept { *this = std::move(other); }

HugeRegion& HugeRegion::operator=(HugeRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  return *this;
}

uint64_t HugeRegion::huge_bytes() const {
  if (data_ == nullptr) return 0;
  std::FILE* smaps = std::fopen("/proc/self/smaps", "re");
  if (smaps == nullptr) return 0;
  const uint64_t begin = reinterpret_cast<uintptr_t>(data_);
  const uint64_t end = begin + bytes_;
  uint64_t overlap = 0;  // of the mapping that the lines being read describe
  uint64_t total = 0;
  constexpr char kHugeField[] = "AnonHugePages:";
  char line[512];
  while (std::fgets(line, sizeof(line), smaps) != nullptr) {
    char* end_of_number = nullptr;
    const uint64_t from = std::strtoull(line, &end_of_number, 16);
    if (*end_of_number == '-') {  // the first line of a mapping: begin-end in hexadecimal
      const uint64_t to = std::strtoull(end_of_number + 1, nullptr, 16);
      const uint64_t low = std::max(from, begin);
      const uint64_t high = std::min(to, end);
      overlap = high > low ? high - low : 0;
    } else if (overlap > 0 && std::strncmp(line, kHugeField, sizeof(kHugeField) - 1) == 0) {
      const uint64_t kib = std::strtoull(line + sizeof(kHugeField) - 1, nullptr, 10);
      // The kernel merges neighbouring mappings; a merged one's figure may count a neighbour's pages.
      total += std::min(kib << 10, overlap);
    }
  }
  std::fclose(smaps);
  return total;
}

uint8_t* HugeArena::allocate(uint64_t bytes) {
  const uint64_t wanted = round_up(std::max<uint64_t>(bytes, 1), 64);
  if (regions_.empty() || regions_.back().bytes() - used_ < wanted) {
    regions_.emplace_back(std::max(wanted, kArenaRegionBytes), true);
    used_ = 0;
  }
  uint8_t* result = regions_.back().data() + used_;
  used_ += wanted;
  return result;
}

uint64_t HugeArena::huge_bytes() const {
  uint64_t total = 0;
  for (const HugeRegion& region : regions_) total += region.huge_bytes();
  return total;
}

}  // namespace tokenmill
