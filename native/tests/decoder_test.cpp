// The decoder as native code alone: a tiny model with random weights runs under the sanitizers; one, two and more
// threads give the same bits; whatever is wrong with a step, a tensor or a plan is refused before it is used.
#include "decoder/decoder.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "check.h"
#include "decoder/rope_table.h"
#include "dispatch/kernel_registry.h"
#include "dispatch/test_data.h"
#include "sets_to_test.h"
#include "tiny_decoder.h"

namespace {

using namespace tokenmill;
using tokenmill::test::Batch;
using tokenmill::test::expect;
using tokenmill::test::fail;
using tokenmill::test::TemporaryFile;
using tokenmill::test::tensor_bytes;

constexpr int32_t kVocab = test::TinyShape{}.vocab;
constexpr int32_t kEmbedding = test::TinyShape{}.embedding;
constexpr int32_t kPages = 40;

DecoderPlan tiny_plan() { return test::tiny_plan({}); }

std::unique_ptr<Decoder> tiny_decoder(const KernelSet& kernels, int threads, const Placement& placement = {}) {
  return test::tiny_decoder(kernels, threads, {},
                            {WeightFormat::q4_0, WeightFormat::q8_0, WeightFormat::q5_1, WeightFormat::f16}, kPages,
                            placement);
}

Batch two_sequences() { return {{1, 2, 3, 4, 5}, {0, 3, 5}, {0, 0}, {7, 3}, {0, 1, 2}, {2, 4}, {}, {}}; }

// Prefills one long and one short sequence in chunks, then decodes both; all logits one after another.
std::vector<float> play(Decoder& decoder) {
  std::vector<float> all;
  std::vector<int32_t> long_pages;
  long_pages.reserve(34);
  for (int32_t page = 0; page < 34; ++page) long_pages.push_back((page * 7) % 37);
  int32_t position = 0;
  for (const int32_t count : {1, 40, 250, 200, 1, 1}) {
    Batch batch;
    for (int32_t i = 0; i < count; ++i) batch.tokens.push_back((position + i * 3) % kVocab);
    batch.tokens.push_back(position % kVocab);
    batch.starts = {0, count, count + 1};
    batch.positions = {position, position == 0 ? 0 : 1};
    batch.page_table = long_pages;
    batch.page_table.push_back(38);
    batch.page_starts = {0, 34, 35};
    batch.sample_rows = {count - 1, count};
    const StepResult result = decoder.step(batch.input());
    all.insert(all.end(), result.logits.get(), result.logits.get() + 2 * kVocab);
    for (const uint8_t bad : result.nonfinite) expect(bad == 0, "tiny weights give finite values");
    position += count;
  }
  return all;
}

void test_threads_and_sets_agree() {
  const std::vector<float> expected = play(*tiny_decoder(reference_kernel_set(), 1));
  std::vector<const KernelSet*> sets = test::sets_to_test();
  sets.push_back(&reference_kernel_set());
  for (const KernelSet* set : sets) {
    for (const int threads : {1, 2, 5}) {
      const std::vector<float> got = play(*tiny_decoder(*set, threads));
      expect(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(float)) == 0,
             std::string(set->name) + " with " + std::to_string(threads) + " threads differs");
    }
  }
}

// Which copies of the weights a step's matrix products read.
std::mutex read_mutex;
std::set<const uint8_t*> read_weights;
template <int format>
void recording_matmul(const PackedMatrix& w, const Activations& x, int64_t begin, int64_t end, float* y,
                      int64_t stride) {
  {
    const std::lock_guard<std::mutex> lock(read_mutex);
    read_weights.insert(w.data);
  }
  reference_kernel_set().matmul[format](w, x, begin, end, y, stride);
}

template <size_t... formats>
KernelSet recording_set(std::index_sequence<formats...>) {
  KernelSet set = reference_kernel_set();
  ((set.matmul[formats] = &recording_matmul<static_cast<int>(formats)>), ...);
  return set;
}

std::set<const uint8_t*> weights_read_by(const Placement& placement, int threads, const std::vector<float>& expected) {
  const KernelSet recording = recording_set(std::make_index_sequence<kWeightFormatCount>());
  const auto decoder = tiny_decoder(recording, threads, placement);
  read_weights.clear();
  // A thread that wakes up late takes no piece: go on until all copies were read, within reason.
  const size_t matrices = 15;
  for (int i = 0; i < 50 && (i == 0 || (threads > 1 && read_weights.size() < 2 * matrices)); ++i) {
    const std::vector<float> got = play(*decoder);
    expect(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(float)) == 0, "copies change the logits");
  }
  return read_weights;
}

// Two copies on one node stand for two nodes: the same bits, each thread reads its own copy, both are read.
void test_weight_copies() {
  const std::vector<float> expected = play(*tiny_decoder(reference_kernel_set(), 1));
  Placement placement;
  placement.weight_copies = {{0}, {0}};
  placement.kv_nodes = {0};
  placement.thread_copies = {0};
  expect(weights_read_by(placement, 1, expected).size() == 15, "one thread reads every matrix of one copy");
  placement.thread_copies = {1};
  expect(weights_read_by(placement, 1, expected).size() == 15, "one thread reads every matrix of the other");
  placement.thread_copies = {0, 1};
  expect(weights_read_by(placement, 2, expected).size() == 30, "two threads read both copies");
  const auto one = tiny_decoder(reference_kernel_set(), 1);
  placement.thread_copies = {1};
  const auto two = tiny_decoder(reference_kernel_set(), 1, placement);
  expect(two->weight_bytes() > one->weight_bytes() * 19 / 10, "two copies take twice the bytes");
}

template <class Error>
void expect_error(const std::function<void()>& call, const std::string& what, const std::string& part) {
  try {
    call();
    fail(what + " was accepted");
  } catch (const Error& error) {
    expect(std::string(error.what()).find(part) != std::string::npos, what + " says: " + error.what());
  }
}

void test_bad_steps() {
  const auto decoder = tiny_decoder(reference_kernel_set(), 1);
  decoder->step(two_sequences().input());
  SamplerConfig biased;
  biased.logit_bias = {{kVocab, 1.0F}};
  SamplerConfig penalized;
  penalized.presence_penalty = 1.0F;
  const int32_t outside = kVocab;
  struct Case {
    const char* part;
    std::function<void(Batch&)> spoil;
  };
  const std::vector<Case> cases = {
      {"empty", [](Batch& b) { b = Batch{}; }},
      {"tokens[1]", [](Batch& b) { b.tokens[1] = kVocab; }},
      {"tokens[0]", [](Batch& b) { b.tokens[0] = -1; }},
      {"starts", [](Batch& b) { b.starts.pop_back(); }},
      {"starts", [](Batch& b) { b.starts[0] = 1; }},
      {"starts", [](Batch& b) { b.starts[2] = 6; }},
      {"starts", [](Batch& b) { b.starts[1] = 9; }},
      {"no tokens", [](Batch& b) { b.starts[1] = 0; }},
      {"negative", [](Batch& b) { b.positions[0] = -1; }},
      {"context", [](Batch& b) { b.positions[0] = 598; }},
      {"context", [](Batch& b) { b.positions[0] = 2147483647; }},
      {"needs 2 pages", [](Batch& b) { b.positions[0] = 14; }},
      {"page_table[0]", [](Batch& b) { b.page_table[0] = kPages; }},
      {"page_table[1]", [](Batch& b) { b.page_table[1] = -1; }},
      {"page_starts", [](Batch& b) { b.page_starts = {0, 2}; }},
      {"page_starts", [](Batch& b) { b.page_starts[1] = -5; }},
      {"needs 1 pages", [](Batch& b) { b.page_starts[1] = 0; }},
      {"written already", [](Batch& b) { b.page_table[1] = b.page_table[0]; }},
      {"sample_rows[1]", [](Batch& b) { b.sample_rows[1] = 5; }},
      {"sample_rows[0]", [](Batch& b) { b.sample_rows[0] = -1; }},
      {"samplers", [&](Batch& b) { b.samplers = {&penalized}; }},
      {"logit_bias", [&](Batch& b) { b.samplers = {&biased, &biased}; }},
      {"histories",
       [&](Batch& b) {
         b.samplers = {&penalized, &penalized};
         b.histories = {{&outside, 1, 1}, {}};
       }},
      {"longer than itself",
       [&](Batch& b) {
         b.samplers = {&penalized, &penalized};
         b.histories = {{&outside, 0, 1}, {}};
       }},
  };
  for (const Case& each : cases) {
    Batch batch = two_sequences();
    each.spoil(batch);
    expect_error<std::invalid_argument>([&] { decoder->step(batch.input()); },
                                        std::string("a step with bad ") + each.part, each.part);
  }
  const int32_t pages[] = {0, kPages};
  expect_error<std::invalid_argument>([&] { decoder->zero_pages(pages); }, "zeroing an absent page", "page 40");
  decoder->step(two_sequences().input());  // and it still works
}

void test_bad_placements() {
  const auto with = [](const std::function<void(Placement&)>& spoil) {
    return [spoil] {
      Placement placement;
      spoil(placement);
      const Decoder decoder(tiny_plan(), reference_kernel_set(), 2, placement);
    };
  };
  using Invalid = std::invalid_argument;
  expect_error<Invalid>(with([](Placement& p) { p.weight_copies.clear(); }), "no copy", "no copy");
  expect_error<Invalid>(with([](Placement& p) { p.thread_copies = {0}; }), "copies of too few threads", "1 copies");
  expect_error<Invalid>(with([](Placement& p) { p.thread_copies = {0, 1}; }), "a copy that is not there",
                        "copy 1 of 1");
  expect_error<Invalid>(with([](Placement& p) { p.thread_cpus = {{0}}; }), "CPUs of too few threads", "1 of 2");
}

void test_bad_tensors() {
  Decoder decoder(tiny_plan(), reference_kernel_set(), 2, {});
  const TemporaryFile file;
  const std::vector<TensorSpec> specs = check_plan(tiny_plan());
  const TensorSpec& table = specs[0];
  std::vector<uint8_t> bytes = tensor_bytes(table, WeightFormat::q4_0, 1);
  const auto load = [&](const char* name, WeightFormat format, int64_t rows, int64_t k, uint64_t offset,
                        uint64_t size) {
    return [&, name, format, rows, k, offset, size] {
      decoder.load_tensor(name, format, rows, k, {file.fd(), offset, size});
    };
  };
  file.put(bytes);
  using Invalid = std::invalid_argument;
  const uint64_t size = bytes.size();
  expect_error<Invalid>(load("nobody", WeightFormat::q4_0, kVocab, kEmbedding, 0, size), "an unknown tensor", "nobody");
  expect_error<Invalid>(load("embedding", WeightFormat::q4_0, kVocab, 32, 0, size), "a wrong shape", "[50, 32]");
  expect_error<Invalid>(load("embedding", WeightFormat::q4_0, kVocab, kEmbedding, 0, size - 1), "a wrong size",
                        "bytes");
  expect_error<Invalid>(load("embedding", WeightFormat::q4_k, kVocab, kEmbedding, 0, size), "a wrong block", "256");
  expect_error<Invalid>(load("output_norm", WeightFormat::q8_0, 1, kEmbedding, 0, 68), "an integer norm", "F32");
  expect_error<std::system_error>(load("embedding", WeightFormat::q4_0, kVocab, kEmbedding, 4, size), "a short file",
                                  "ends early");
  expect_error<std::system_error>(
      [&] { decoder.load_tensor("embedding", WeightFormat::q4_0, kVocab, kEmbedding, {-1, 0, size}); }, "a bad file",
      "reading failed");
  // Row 20, block 1: the scale becomes infinite; a later row is bad, too.
  for (const uint64_t row : {uint64_t{20}, uint64_t{44}}) {
    bytes[row * 36 + 18] = 0x00;
    bytes[row * 36 + 19] = 0x7C;
  }
  file.put(bytes);
  expect_error<std::runtime_error>(load("embedding", WeightFormat::q4_0, kVocab, kEmbedding, 0, size), "a bad scale",
                                   "row 20, block 1");
  expect_error<Invalid>([&] { decoder.finish_loading(); }, "a missing tensor", "embedding is missing");
  expect_error<Invalid>([&] { decoder.step(two_sequences().input()); }, "a step without weights", "not loaded");
}

void test_bad_plans() {
  struct Case {
    const char* part;
    std::function<void(DecoderPlan&)> spoil;
  };
  const std::vector<Case> cases = {
      {"experts", [](DecoderPlan& p) { p.layers[1].ffn.expert_count = 8; }},
      {"head_dim 12", [](DecoderPlan& p) { p.layers[0].attention.head_dim = 12; }},
      {"head_dim 512", [](DecoderPlan& p) { p.layers[0].attention.head_dim = 512; }},
      {"multiple of kv_head_count", [](DecoderPlan& p) { p.layers[0].attention.kv_head_count = 3; }},
      {"kv_head_count is 0", [](DecoderPlan& p) { p.layers[0].attention.kv_head_count = 0; }},
      {"window", [](DecoderPlan& p) { p.layers[0].attention.window = -1; }},
      {"rotary_dim", [](DecoderPlan& p) { p.layers[0].attention.rope.rotary_dim = 18; }},
      {"rope base", [](DecoderPlan& p) { p.layers[0].attention.rope.base = 0.0; }},
      {"names no tensor", [](DecoderPlan& p) { p.layers[0].ffn.down.weight = kNoTensor; }},
      {"names no tensor", [](DecoderPlan& p) { p.layers[0].ffn.down.weight = 1000; }},
      {"two different shapes", [](DecoderPlan& p) { p.layers[0].ffn.down.weight = p.layers[0].ffn.up.weight; }},
      {"vocab_size", [](DecoderPlan& p) { p.model.vocab_size = 0; }},
      {"layer count", [](DecoderPlan& p) { p.layers.clear(); }},
      {"no role", [](DecoderPlan& p) { p.tensor_names.emplace_back("spare"); }},
      {"norm_epsilon", [](DecoderPlan& p) { p.model.norm_epsilon = NAN; }},
  };
  for (const Case& each : cases) {
    DecoderPlan plan = tiny_plan();
    each.spoil(plan);
    expect_error<std::invalid_argument>([&] { check_plan(plan); }, std::string("a plan with bad ") + each.part,
                                        each.part);
  }
}

void test_sines() {
  double worst = 0.0;
  TestRandom random(9);
  for (int i = 0; i < 200'000; ++i) {
    const double x = static_cast<double>(random.unit()) * (i % 2 == 0 ? 10.0 : 1e6);
    const SinCos got = sin_cos_fixed(x);
    worst = std::max(worst, std::fabs(static_cast<double>(static_cast<long double>(got.sin) -
                                                          std::sin(static_cast<long double>(x)))));
    worst = std::max(worst, std::fabs(static_cast<double>(static_cast<long double>(got.cos) -
                                                          std::cos(static_cast<long double>(x)))));
  }
  expect(worst < 4e-16, "sine and cosine are off by " + std::to_string(worst * 1e16) + "e-16");
}

void test_rope_table() {
  const RopePlan plan{RopeStyle::half, 128, 500000.0, 0.25, kNoTensor};
  std::vector<float> factors(64, 1.0F);
  factors[63] = 8.0F;
  const RopeTable table(plan, factors.data());
  float cos[64];
  float sin[64];
  table.fill(100'000, cos, sin);
  for (int i = 0; i < 64; ++i) {
    const long double angle =
        25'000.0L * powl(500000.0L, -2.0L * i / 128) / static_cast<long double>(factors[static_cast<size_t>(i)]);
    expect(std::fabs(static_cast<double>(cosl(angle) - static_cast<long double>(cos[i]))) < 1e-7, "cosine table");
    expect(std::fabs(static_cast<double>(sinl(angle) - static_cast<long double>(sin[i]))) < 1e-7, "sine table");
  }
}

}  // namespace

int main() {
  test_sines();
  test_rope_table();
  test_bad_plans();
  test_bad_tensors();
  test_bad_placements();
  test_bad_steps();
  test_threads_and_sets_agree();
  test_weight_copies();
  return tokenmill::test::finish();
}
