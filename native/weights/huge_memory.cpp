#include "weights/huge_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

namespace tokenmill {
namespace {

// Address space, not memory: each region may leave half a huge page behind its last tensor, so there should be few.
constexpr uint64_t kArenaRegionBytes = uint64_t{256} << 20;
// Past what was expected.
constexpr uint64_t kLastRegionBytes = uint64_t{4} << 20;

// MADV_POPULATE_WRITE of Linux 5.14, which older headers lack.
constexpr int kPopulateWrite = 23;

const PageSizes& page_sizes() {
  static const PageSizes sizes = read_page_sizes();
  return sizes;
}

// Bytes of [data, data + bytes) in transparent huge pages now, from /proc/self/smaps; 0 where that cannot be read.
uint64_t transparent_bytes(const uint8_t* data, uint64_t bytes) {
  std::FILE* smaps = std::fopen("/proc/self/smaps", "re");
  if (smaps == nullptr) return 0;
  const uint64_t begin = reinterpret_cast<uintptr_t>(data);
  const uint64_t end = begin + bytes;
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

}  // namespace

void MemoryReport::add(const MemoryReport& other) {
  pool_bytes += other.pool_bytes;
  transparent_bytes += other.transparent_bytes;
  if (pool_refusal.empty()) pool_refusal = other.pool_refusal;
  if (policy_refusal.empty()) policy_refusal = other.policy_refusal;
  for (const auto& [node, bytes] : other.node_bytes) node_bytes[node] += bytes;
}

HugeRegion::HugeRegion(uint64_t bytes, bool reserve_only, const NodeSet& nodes) : placed_(!nodes.empty()) {
  if (bytes == 0) return;
  if (bytes > std::numeric_limits<uint64_t>::max() / 4) throw std::bad_alloc();
  if (map_from_pool(bytes, nodes)) return;
  const RegionShape shape = shape_region(bytes, page_sizes());
  bytes_ = shape.bytes;
  mapping_bytes_ = bytes_ + shape.alignment;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (reserve_only ? MAP_NORESERVE : 0);
  void* mapping = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<uint8_t*>(mapping);
  const uint64_t address = reinterpret_cast<uintptr_t>(mapping_);
  data_ = mapping_ + (round_up(address, shape.alignment) - address);
  // Only advice: a kernel that grants no huge pages answers with an error and serves small ones.
  if (shape.advised > 0) madvise(data_, shape.advised, MADV_HUGEPAGE);
  policy_refusal_ = apply_node_policy(data_, bytes_, nodes);
}

// All of it or nothing. The pages are filled at once: a control group's limit of huge pages shows at the first touch,
// where only this call answers with an error and anything else dies of SIGBUS.
bool HugeRegion::map_from_pool(uint64_t bytes, const NodeSet& nodes) {
  const uint64_t page = page_sizes().pool;
  if (page == 0 || !is_worth_rounding(bytes, page)) return false;
  const uint64_t wanted = round_up(bytes, page);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
  void* mapping = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapping == MAP_FAILED) {
    pool_refusal_ = pool_refusal(bytes, page, std::generic_category().message(errno));
    return false;
  }
  std::string refusal = apply_node_policy(mapping, wanted, nodes);
  if (madvise(mapping, wanted, kPopulateWrite) != 0) {
    pool_refusal_ = pool_refusal(bytes, page, "filling them: " + std::generic_category().message(errno));
    munmap(mapping, wanted);
    return false;
  }
  policy_refusal_ = std::move(refusal);
  mapping_ = static_cast<uint8_t*>(mapping);
  data_ = mapping_;
  mapping_bytes_ = wanted;
  bytes_ = wanted;
  from_pool_ = true;
  return true;
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
  std::swap(from_pool_, other.from_pool_);
  std::swap(placed_, other.placed_);
  std::swap(pool_refusal_, other.pool_refusal_);
  std::swap(policy_refusal_, other.policy_refusal_);
  return *this;
}

MemoryReport HugeRegion::report() const {
  MemoryReport report;
  if (data_ == nullptr) return report;
  report.pool_bytes = from_pool_ ? bytes_ : 0;
  report.transparent_bytes = from_pool_ ? 0 : transparent_bytes(data_, bytes_);
  report.pool_refusal = pool_refusal_;
  report.policy_refusal = policy_refusal_;
  if (placed_) report.node_bytes = sample_node_bytes(data_, bytes_);
  return report;
}

void HugeRegion::lock(uint64_t bytes) const {
  if (mlock(data_, std::min(bytes, bytes_)) != 0) throw std::system_error(errno, std::generic_category(), "mlock");
}

HugeArena::HugeArena(NodeSet nodes, uint64_t expected_bytes)
    : nodes_(std::move(nodes)), expected_is_known_(expected_bytes != 0), expected_bytes_(expected_bytes) {}

uint8_t* HugeArena::allocate(uint64_t bytes) {
  const uint64_t wanted = round_up(std::max<uint64_t>(bytes, 1), 64);
  if (regions_.empty() || regions_.back().region.bytes() - regions_.back().used < wanted) {
    const uint64_t rest = std::max(expected_bytes_, kLastRegionBytes);
    const uint64_t region = expected_is_known_ ? std::min(rest, kArenaRegionBytes) : kArenaRegionBytes;
    regions_.push_back({HugeRegion(std::max(wanted, region), true, nodes_), 0});
  }
  Filled& last = regions_.back();
  uint8_t* result = last.region.data() + last.used;
  last.used += wanted;
  expected_bytes_ -= std::min(expected_bytes_, wanted);
  return result;
}

MemoryReport HugeArena::report() const {
  MemoryReport total;
  for (const Filled& filled : regions_) total.add(filled.region.report());
  return total;
}

uint64_t HugeArena::lock() const {
  uint64_t total = 0;
  for (const Filled& filled : regions_) {
    filled.region.lock(filled.used);
    total += filled.used;
  }
  return total;
}

}  // namespace tokenmill
