// Storage of keys and values: pages of 16 tokens. A page number stands for the tokens' keys and values in all layers;
// who owns a page is decided elsewhere.
#pragma once
#include <cstdint>
#include <vector>

#include "contract/kernel_set.h"
#include "weights/huge_memory.h"

namespace tokenmill {

class KvPages {
 public:
  struct LayerShape {
    int32_t kv_head_count;
    int32_t head_dim;
  };

  explicit KvPages(const std::vector<LayerShape>& layers);

  uint64_t page_bytes() const { return page_elements_ * sizeof(uint16_t); }
  int32_t page_count() const { return page_count_; }
  MemoryReport report() const { return region_.report(); }
  // Keeps the pages in memory; returns their bytes. Throws std::system_error when the kernel refuses.
  uint64_t lock() const;

  // Replaces the storage by `pages` zeroed pages on the given nodes. Throws std::bad_alloc.
  void allocate(int32_t pages, const NodeSet& nodes);
  void zero(int32_t page);

  // fp16 [head_dim][16 keys] of one page, layer and KV head; the values, [16 keys][head_dim], follow it.
  uint16_t* keys(int32_t page, int32_t layer, int32_t kv_head) const {
    const Layer& shape = layers_[static_cast<size_t>(layer)];
    return reinterpret_cast<uint16_t*>(region_.data()) + static_cast<uint64_t>(page) * page_elements_ + shape.offset +
           static_cast<uint64_t>(kv_head) * 2 * shape.head_elements;
  }
  uint16_t* values(int32_t page, int32_t layer, int32_t kv_head) const {
    return keys(page, layer, kv_head) + layers_[static_cast<size_t>(layer)].head_elements;
  }

 private:
  struct Layer {
    uint64_t offset;         // elements from the page's start
    uint64_t head_elements;  // of the keys, or the values, of one head
  };

  std::vector<Layer> layers_;
  uint64_t page_elements_ = 0;
  int32_t page_count_ = 0;
  HugeRegion region_;
};

}  // namespace tokenmill
