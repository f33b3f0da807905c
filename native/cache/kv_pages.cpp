#include "cache/kv_pages.h"

#include <cstring>
#include <limits>
#include <new>

namespace tokenmill {

KvPages::KvPages(const std::vector<LayerShape>& layers) {
  for (const LayerShape& shape : layers) {
    // head_dim is a multiple of 8, so every head starts on a 256-byte boundary.
    const uint64_t head_elements = static_cast<uint64_t>(shape.head_dim) * kPageTokens;
    layers_.push_back({page_elements_, head_elements});
    page_elements_ += 2 * head_elements * static_cast<uint64_t>(shape.kv_head_count);
  }
}

void KvPages::allocate(int32_t pages, const NodeSet& nodes) {
  page_count_ = 0;
  region_ = HugeRegion();
  const uint64_t count = static_cast<uint64_t>(pages);
  if (count > std::numeric_limits<uint64_t>::max() / 4 / page_bytes()) throw std::bad_alloc();
  region_ = HugeRegion(count * page_bytes(), false, nodes);
  page_count_ = pages;
}

uint64_t KvPages::lock() const {
  const uint64_t bytes = static_cast<uint64_t>(page_count_) * page_bytes();
  if (bytes > 0) region_.lock(bytes);
  return bytes;
}

void KvPages::zero(int32_t page) {
  std::memset(region_.data() + static_cast<uint64_t>(page) * page_bytes(), 0, page_bytes());
}

}  // namespace tokenmill
