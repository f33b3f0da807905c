// Logits of whole models over text are the reference's on every set that can be tested here, emulated ones included:
// two models with every weight format between them, alone and among 31 others, in chunks, for one thread and several.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "dispatch/kernel_registry.h"
#include "sets_to_test.h"
#include "tiny_decoder.h"

namespace {

using tokenmill::KernelSet;
using tokenmill::kPageTokens;
using tokenmill::StepResult;
using tokenmill::WeightFormat;
using tokenmill::test::Batch;
using tokenmill::test::TinyShape;

// From the opening of Moby-Dick; its bytes are the tokens.
constexpr std::string_view kText =
    "Call me Ishmael. Some years ago--never mind how long precisely--having little or no money in my purse, and "
    "nothing "
    "particular to interest me on shore, I thought I would sail about a little and see the watery part of the world. "
    "It "
    "is a way I have of driving off the spleen and regulating the circulation. Whenever I find myself growing grim "
    "about "
    "the mouth; whenever it is a damp, drizzly November in my soul; whenever I find myself involuntarily pausing "
    "before "
    "coffin warehouses, and bringing up the rear of every funeral I meet; and especially whenever my hypos get such an "
    "upper hand of me, that it requires a strong moral principle to prevent me from deliberately stepping into the "
    "street.";
constexpr const char* kBytes = kText.data();
constexpr auto kTokens = static_cast<int32_t>(kText.size());
constexpr int32_t kVocab = 128;
constexpr int32_t kNeighbours = 31;
constexpr int32_t kTextPages = (kTokens + kPageTokens - 1) / kPageTokens;

static_assert(kTokens >= 600);

struct Way {
  int threads;
  int32_t chunk;
  bool among_others;
};

struct Model {
  const char* name;
  TinyShape shape;
  std::vector<WeightFormat> formats;  // of the matrices, in turn
};

// A K of 64 and 96 is no multiple of 256; K formats need one.
std::vector<Model> models() {
  Model simple{"simple formats", {.vocab = kVocab, .context = 1024}, {}};
  Model super_blocks{"K formats", {kVocab, 256, 8, 2, 32, 256, 1024}, {}};
  for (int i = 0; i < tokenmill::kWeightFormatCount; ++i) {
    const auto format = static_cast<WeightFormat>(i);
    const bool super_block = tokenmill::format_info(format).block_elements == tokenmill::kSuperBlockSize;
    (super_block ? super_blocks : simple).formats.push_back(format);
  }
  return {simple, super_blocks};
}

uint64_t hash(uint64_t state, const float* values, int64_t count) {  // FNV-1a over words
  for (int64_t i = 0; i < count; ++i) {
    state = (state ^ std::bit_cast<uint32_t>(values[i])) * 0x100000001B3U;
  }
  return state;
}

// One token of each neighbour, at the same position in all of them, on the pages behind the text's.
void add_neighbours(Batch& batch, int32_t position) {
  const int32_t pages = position / kPageTokens + 1;
  for (int32_t i = 0; i < kNeighbours; ++i) {
    batch.tokens.push_back((i * 37 + position * 11) % kVocab);
    batch.starts.push_back(static_cast<int32_t>(batch.tokens.size()));
    batch.positions.push_back(position);
    for (int32_t page = 0; page < pages; ++page) {
      batch.page_table.push_back(kTextPages + i + kNeighbours * page);
    }
    batch.page_starts.push_back(static_cast<int32_t>(batch.page_table.size()));
  }
}

// The hash of the logits after every token of the text.
uint64_t text_hash(const KernelSet& set, const Model& model, const Way& way) {
  const int32_t steps = (kTokens + way.chunk - 1) / way.chunk;
  const int32_t neighbour_pages = way.among_others ? kNeighbours * (steps / kPageTokens + 1) : 0;
  const auto decoder =
      tokenmill::test::tiny_decoder(set, way.threads, model.shape, model.formats, kTextPages + neighbour_pages);
  uint64_t state = 0xCBF29CE484222325U;
  for (int32_t step = 0; step < steps; ++step) {
    const int32_t begin = step * way.chunk;
    const int32_t count = std::min(way.chunk, kTokens - begin);
    Batch batch;
    for (int32_t i = 0; i < count; ++i) {
      batch.tokens.push_back(kBytes[begin + i] % kVocab);
      batch.sample_rows.push_back(i);
    }
    batch.starts = {0, count};
    batch.positions = {begin};
    for (int32_t page = 0; page < kTextPages; ++page) {
      batch.page_table.push_back(kTextPages - 1 - page);
    }
    batch.page_starts = {0, kTextPages};
    if (way.among_others) {
      add_neighbours(batch, step);
    }
    const StepResult result = decoder->step(batch.input());
    tokenmill::test::expect(result.nonfinite[0] == 0, "tiny weights give finite values");
    state = hash(state, result.logits.get(), int64_t{count} * kVocab);
  }
  return state;
}

}  // namespace

int main() {
  const std::vector<const KernelSet*> sets = tokenmill::test::sets_to_test();
  for (const Model& model : models()) {
    const uint64_t expected = text_hash(tokenmill::reference_kernel_set(), model, {1, 512, false});
    for (const KernelSet* set : sets) {
      for (const Way& way : {Way{3, 64, true}, Way{1, 512, false}}) {
        if (!way.among_others && !tokenmill::test::is_usable(*set)) {
          continue;  // emulation is slow: the harder way is enough
        }
        tokenmill::test::expect(text_hash(*set, model, way) == expected,
                                std::string(set->name) + ", " + model.name + ", " + std::to_string(way.threads) +
                                    " threads, chunks of " + std::to_string(way.chunk) +
                                    (way.among_others ? ", among others" : ", alone") + ": other logits");
      }
    }
  }
  return tokenmill::test::finish();
}
