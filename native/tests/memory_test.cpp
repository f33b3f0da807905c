// Memory of weights and KV pages: shapes for every page size, NUMA policies that the kernel confirms, locking, and that
// what the kernel refuses costs a remark and nothing else.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "check.h"
#include "weights/huge_memory.h"
#include "weights/memory_policy.h"
#include "weights/page_sizes.h"

namespace {

using namespace tokenmill;
using tokenmill::test::expect;

constexpr uint64_t kKib = 1024;
constexpr uint64_t kMib = 1024 * kKib;

void test_shapes() {
  struct Case {
    PageSizes sizes;
    uint64_t bytes, mapped, alignment, advised;
  };
  const PageSizes usual{4 * kKib, 2 * kMib, 2 * kMib};
  const PageSizes arm16{16 * kKib, 32 * kMib, 32 * kMib};
  const PageSizes arm64{64 * kKib, 512 * kMib, 512 * kMib};
  const PageSizes none{64 * kKib, 0, 0};
  const Case cases[] = {
      {usual, 1, 2 * kMib, 2 * kMib, 2 * kMib},
      {usual, 99 * kMib + 1, 100 * kMib, 2 * kMib, 100 * kMib},
      {arm16, 4 * kMib + 1, 4 * kMib + 16 * kKib, 16 * kKib, 0},
      {arm16, 100 * kMib, 100 * kMib, 32 * kMib, 96 * kMib},
      {arm16, 1000 * kMib, 1024 * kMib, 32 * kMib, 1024 * kMib},
      {arm64, 100 * kMib, 100 * kMib, 64 * kKib, 0},
      {arm64, 4000 * kMib, 4000 * kMib, 512 * kMib, 3584 * kMib},
      {arm64, 8000 * kMib, 8192 * kMib, 512 * kMib, 8192 * kMib},
      {none, 100 * kMib + 1, 100 * kMib + 64 * kKib, 64 * kKib, 0},
  };
  for (const Case& each : cases) {
    const RegionShape shape = shape_region(each.bytes, each.sizes);
    const std::string name = std::to_string(each.bytes) + " bytes in pages of " + std::to_string(each.sizes.base);
    expect(shape.bytes == each.mapped, name + ": mapped " + std::to_string(shape.bytes));
    expect(shape.alignment == each.alignment, name + ": aligned to " + std::to_string(shape.alignment));
    expect(shape.advised == each.advised, name + ": advised " + std::to_string(shape.advised));
  }
  const PageSizes here = read_page_sizes();
  expect(here.base == static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), "the base page is what sysconf says");
  for (const uint64_t size : {here.transparent, here.pool}) {
    expect(size == 0 || (size > here.base && size % here.base == 0), "huge pages are larger");
  }
}

// What get_mempolicy says of the page at `address`: -1 where it says nothing.
int policy_at(void* address, unsigned long& nodes) {
  constexpr int kOfAddress = 2;  // MPOL_F_ADDR
  int mode = -1;
  unsigned long mask[16] = {};
  if (syscall(SYS_get_mempolicy, &mode, mask, sizeof(mask) * 8, address, kOfAddress) != 0) return -1;
  nodes = mask[0];
  return mode;
}

void test_policies() {
  const uint64_t bytes = 8 * kMib;
  for (const NodeSet& nodes : {NodeSet{}, NodeSet{0}, NodeSet{0, 0}}) {
    const HugeRegion region(bytes, true, nodes);
    unsigned long mask = 0;
    const int mode = policy_at(region.data(), mask);
    std::memset(region.data(), 1, bytes);
    const MemoryReport report = region.report();
    if (nodes.empty()) {
      expect(report.node_bytes.empty() && report.policy_refusal.empty(), "no policy, no figures");
      expect(mode <= 0, "nobody asked for a policy");
    } else if (report.policy_refusal.empty()) {
      expect(mode == (nodes.size() == 1 ? 1 : 3), "get_mempolicy says " + std::to_string(mode));
      expect(mask == 1, "the policy names node 0");
      uint64_t total = 0;
      for (const auto& [node, size] : report.node_bytes) total += size;
      expect(total > bytes * 9 / 10 && total < bytes * 11 / 10, "the sample counts " + std::to_string(total));
    } else {
      // A kernel or a sandbox without NUMA calls: one remark that names the call, and memory all the same.
      expect(report.policy_refusal.find("mbind") == 0, "the refusal names its call: " + report.policy_refusal);
    }
  }
  const HugeRegion absent(bytes, true, {1023});
  absent.data()[bytes - 1] = 1;
  expect(!absent.report().policy_refusal.empty(), "a node that is not there is remarked");
  expect(!apply_node_policy(absent.data(), bytes, {5000}).empty(), "a node out of range is remarked");
}

// The number of a "Key:   123 kB" line.
uint64_t kib_of(const char* path, const char* key) {
  std::FILE* file = std::fopen(path, "re");
  char line[256];
  uint64_t kib = 0;
  while (file != nullptr && std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, key, std::strlen(key)) == 0) kib = std::strtoull(line + std::strlen(key), nullptr, 10);
  }
  if (file != nullptr) std::fclose(file);
  return kib;
}

void test_huge_pages() {
  HugeArena arena({}, 8 * kMib);
  uint8_t* first = arena.allocate(3 * kMib + 5);
  uint8_t* second = arena.allocate(3 * kMib);
  expect(second == first + 3 * kMib + 64, "pieces follow each other on cache lines");
  expect(reinterpret_cast<uintptr_t>(first) % 64 == 0, "pieces are aligned");
  std::memset(first, 1, 3 * kMib);
  std::memset(second, 1, 3 * kMib);
  arena.allocate(300 * kMib);  // past what was expected
  const MemoryReport report = arena.report();
  const bool has_pool = kib_of("/proc/meminfo", "Hugepagesize:") != 0;
  expect(report.pool_bytes != 0 || !report.pool_refusal.empty() || !has_pool, "reserved pages, or why not");
}

void test_locking() {
  HugeArena arena({}, 4 * kMib);
  std::memset(arena.allocate(4 * kMib), 1, 4 * kMib);
  const uint64_t before = kib_of("/proc/self/status", "VmLck:");
  bool locked = false;
  try {
    locked = arena.lock() == 4 * kMib;
    expect(locked, "all of it is locked");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const bool counted = false;  // sanitizers turn mlock into nothing
#else
    const bool counted = arena.report().pool_bytes == 0;  // reserved pages are never swapped, and not counted
#endif
    expect(!counted || kib_of("/proc/self/status", "VmLck:") >= before + 4096, "the kernel counts it");
  } catch (const std::system_error& error) {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    expect(limit.rlim_cur < 4 * kMib, std::string("refused below the limit: ") + error.what());
  }
}

}  // namespace

int main() {
  test_shapes();
  test_policies();
  test_huge_pages();
  test_locking();
  return tokenmill::test::finish();
}
