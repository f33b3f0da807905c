// NUMA placement of memory, through the kernel's own system calls: libnuma is one more thing to install.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tokenmill {

// Node ids. None: the node of the thread that touches a page first. One: that node, others when it is full. Several:
// page by page in turn.
using NodeSet = std::vector<int>;

// Sets the policy of pages of [data, data + bytes) that are not touched yet; `data` lies on a page's start. Returns
// what the kernel said against it, empty on success: memory then comes from where the kernel likes.
std::string apply_node_policy(void* data, uint64_t bytes, const NodeSet& nodes);

// Bytes by node of the touched pages of [data, data + bytes), from a sample of the pages, scaled up. Empty where the
// kernel does not say.
std::map<int, uint64_t> sample_node_bytes(const void* data, uint64_t bytes);

}  // namespace tokenmill
