// KV pages: places do not overlap, zeroing one page leaves the others, absurd sizes are refused.
#include <cstdint>
#include <new>
#include <set>
#include <utility>

#include "cache/kv_pages.h"
#include "check.h"

namespace {

using tokenmill::kPageTokens;
using tokenmill::KvPages;
using tokenmill::test::expect;

void test_layout() {
  const std::vector<KvPages::LayerShape> layers = {{2, 64}, {1, 24}, {3, 128}};
  KvPages pages(layers);
  uint64_t elements = 0;
  for (const auto& layer : layers) {
    elements +=
        uint64_t{2} * static_cast<uint64_t>(layer.kv_head_count) * static_cast<uint64_t>(layer.head_dim) * kPageTokens;
  }
  expect(pages.page_bytes() == 2 * elements, "bytes of a page");
  constexpr int32_t kPages = 3;
  pages.allocate(kPages, {});
  std::set<std::pair<const uint16_t*, const uint16_t*>> ranges;
  for (int32_t page = 0; page < kPages; ++page) {
    for (int32_t layer = 0; layer < 3; ++layer) {
      const auto& shape = layers[static_cast<size_t>(layer)];
      const int64_t count = int64_t{shape.head_dim} * kPageTokens;
      for (int32_t head = 0; head < shape.kv_head_count; ++head) {
        for (uint16_t* begin : {pages.keys(page, layer, head), pages.values(page, layer, head)}) {
          ranges.insert({begin, begin + count});
          for (int64_t i = 0; i < count; ++i) expect(begin[i] == 0, "new pages are zero");
          for (int64_t i = 0; i < count; ++i) begin[i] = static_cast<uint16_t>(page + 1);
        }
      }
    }
  }
  expect(ranges.size() == static_cast<size_t>(kPages) * 12, "every place is its own");
  const uint16_t* last_end = nullptr;
  for (const auto& [begin, end] : ranges) {
    expect(last_end == nullptr || begin == last_end, "places follow each other without overlap");
    last_end = end;
  }
  pages.zero(1);
  for (int32_t page = 0; page < kPages; ++page) {
    const uint16_t wanted = page == 1 ? uint16_t{0} : static_cast<uint16_t>(page + 1);
    expect(*pages.keys(page, 0, 0) == wanted, "the first element after zeroing a page");
    expect(pages.values(page, 2, 2)[128 * kPageTokens - 1] == wanted, "the last element after zeroing a page");
  }
}

void test_refusal() {
  KvPages pages({{1 << 20, 256}});
  bool refused = false;
  try {
    pages.allocate(1 << 30, {});
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  expect(refused, "an absurd number of pages is refused");
  expect(pages.page_count() == 0, "no pages after a refusal");
}

}  // namespace

int main() {
  test_layout();
  test_refusal();
  return tokenmill::test::finish();
}
