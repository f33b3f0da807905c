#include "weights/memory_policy.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <system_error>

namespace tokenmill {
namespace {

// From the kernel's include/uapi/linux/mempolicy.h, which not every build machine has.
constexpr int kPreferred = 1;
constexpr int kInterleave = 3;

constexpr int kMaxNodes = 1024;  // what kernels are built with at most
constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;

// Odd, so that a sample does not fall on one node of an interleaved region; two samples in a huge page of 512 pages.
constexpr uint64_t kSampledPageStride = 257;

std::string describe(const char* call, int error) {
  return std::string(call) + ": " + std::generic_category().message(error);
}

}  // namespace

std::string apply_node_policy(void* data, uint64_t bytes, const NodeSet& nodes) {
  if (nodes.empty() || bytes == 0) return {};
  std::vector<unsigned long> mask(kMaxNodes / kWordBits, 0);
  for (const int node : nodes) {
    if (node < 0 || node >= kMaxNodes) return "node " + std::to_string(node) + " is out of range";
    mask[static_cast<size_t>(node) / kWordBits] |= 1UL << (static_cast<size_t>(node) % kWordBits);
  }
  const int mode = nodes.size() == 1 ? kPreferred : kInterleave;
  // The kernel takes one bit less than it is told (since 2.6), hence the + 1.
  const long result = syscall(SYS_mbind, data, bytes, mode, mask.data(), kMaxNodes + 1UL, 0UL);
  return result == 0 ? std::string() : describe("mbind", errno);
}

std::map<int, uint64_t> sample_node_bytes(const void* data, uint64_t bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t pages = bytes / page;
  const uint64_t stride = pages > kSampledPageStride ? kSampledPageStride : 1;
  std::vector<void*> addresses;
  for (uint64_t i = 0; i < pages; i += stride) {
    addresses.push_back(const_cast<uint8_t*>(static_cast<const uint8_t*>(data)) + i * page);
  }
  if (addresses.empty()) return {};
  std::vector<int> status(addresses.size(), -1);
  // Without target nodes the call moves nothing: it tells where each page lies, or an error for one that is untouched.
  if (syscall(SYS_move_pages, 0, addresses.size(), addresses.data(), nullptr, status.data(), 0) != 0) return {};
  std::map<int, uint64_t> result;
  for (const int node : status) {
    if (node >= 0) result[node] += stride * page;
  }
  return result;
}

}  // namespace tokenmill
