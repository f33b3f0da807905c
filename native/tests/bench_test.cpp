// Benchmarks time what they say: equal output is recognised, a wrong one too, and limits count their own work.
#include "bench/attention_bench.h"
#include "bench/limits.h"
#include "bench/matmul_bench.h"
#include "bench/row_bench.h"
#include "check.h"
#include "dispatch/self_test.h"
#include "sets_to_test.h"

namespace {

using tokenmill::BenchThreads;
using tokenmill::KernelSet;
using tokenmill::Repeats;
using tokenmill::WeightFormat;
using tokenmill::test::expect;
using tokenmill::test::expect_same;

constexpr Repeats kFew{3, 0.0};

void check_peak_loops(const KernelSet& set) {
  expect(set.peak_loops != nullptr, std::string(set.name) + " has no peak loops");
  for (const tokenmill::PeakLoop* loop = set.peak_loops; loop != nullptr && loop->run != nullptr; ++loop) {
    const std::string what = std::string(set.name) + ", " + loop->instructions;
    const int64_t once = loop->run(1);
    expect(once > 0, what + ": a round multiplies nothing");
    expect(loop->run(5) == 5 * once, what + ": five rounds are not five times one");
  }
}

void check_matmul(const KernelSet& set, BenchThreads& threads) {
  for (const WeightFormat format : {WeightFormat::f16, WeightFormat::q4_0, WeightFormat::q6_k}) {
    // Rows that are no whole panels, more panels than differ, and more copies than one.
    tokenmill::MatmulBench bench(set, threads, {format, 101, 256, 9}, 300'000);
    expect(bench.copies() > 1, "weights would come from a cache");
    for (const int64_t tokens : {1, 2, 9}) expect_same(set.name, bench.check(tokens));
    expect(bench.run(2, kFew).size() == 3, "other repeats than asked for");
    expect_same(set.name, bench.check(9));
  }
  KernelSet wrong = set;
  break_function(wrong, "matmul_q4_0");
  tokenmill::MatmulBench bench(wrong, threads, {WeightFormat::q4_0, 32, 64, 1}, 0);
  expect(!bench.check(1).empty(), "a product that writes nothing passes");
}

void check_attention(const KernelSet& set, BenchThreads& threads) {
  for (const tokenmill::AttentionBenchShape& shape :
       {tokenmill::AttentionBenchShape{1, 1, 1, 1, 64}, {600, 1, 2, 4, 72}, {300, 8, 2, 3, 64}, {40, 40, 1, 2, 8}}) {
    tokenmill::AttentionBench bench(set, threads, shape, 1'000'000);
    expect_same(set.name, bench.check());
    expect(bench.run(kFew).size() == 3, "other repeats than asked for");
  }
  // One query head over keys 0..9, then over 0..10: 21 pairs of 64 products, twice.
  const tokenmill::AttentionBench counted(set, threads, {11, 2, 1, 1, 64}, 0);
  expect(counted.query_keys() == 21, "pairs of queries and keys");
  expect(counted.multiply_adds() == 2 * 21 * 64, "products of attention");
  expect(counted.kv_bytes() == 2 * 11 * 64 * 2, "bytes of keys and values");
  KernelSet wrong = set;
  break_function(wrong, "attention_fold");
  tokenmill::AttentionBench bench(wrong, threads, {600, 1, 1, 1, 64}, 0);
  expect(!bench.check().empty(), "blocks that are not folded pass");
}

void check_rows_and_reads(const KernelSet& set, BenchThreads& threads) {
  for (const std::string& name : tokenmill::row_functions()) {
    const tokenmill::TimedWork timed = run_row_function(set, name, 256, kFew);
    expect(timed.amount % 2048 == 0 && timed.seconds.size() == 3, name);
  }
  tokenmill::ReadBench read(threads, 4 << 20);
  for (const int streams : {1, 2, 4, 8, 16}) {
    const uint64_t amount = read.run(streams, kFew).amount;
    expect(amount > (7U << 19) && amount <= (4U << 20), "bytes read by streams: " + std::to_string(streams));
  }
}

template <class Call>
void expect_refusal(const char* what, Call call) {
  bool refused = false;
  try {
    call();
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  expect(refused, std::string("not refused: ") + what);
}

void check_refusals(const KernelSet& set, BenchThreads& threads) {
  expect_refusal("half a block", [&] { tokenmill::MatmulBench(set, threads, {WeightFormat::q4_k, 16, 96, 1}, 0); });
  expect_refusal("no rows", [&] { tokenmill::MatmulBench(set, threads, {WeightFormat::q4_0, 0, 64, 1}, 0); });
  expect_refusal("more tokens than prepared",
                 [&] { tokenmill::MatmulBench(set, threads, {WeightFormat::q4_0, 16, 64, 2}, 0).run(3, kFew); });
  expect_refusal("more tokens than keys", [&] { tokenmill::AttentionBench(set, threads, {4, 5, 1, 1, 64}, 0); });
  expect_refusal("a head size", [&] { tokenmill::AttentionBench(set, threads, {4, 1, 1, 1, 60}, 0); });
  expect_refusal("a row function", [&] { run_row_function(set, "nothing", 256, kFew); });
  expect_refusal("a width", [&] { run_row_function(set, "add", 100, kFew); });
  expect_refusal("three streams", [&] { tokenmill::ReadBench(threads, 1 << 20).run(3, kFew); });
}

}  // namespace

int main() {
  BenchThreads threads(2);
  for (const KernelSet* set : tokenmill::test::sets_to_test()) {
    check_peak_loops(*set);
    check_matmul(*set, threads);
    check_attention(*set, threads);
    check_rows_and_reads(*set, threads);
    check_refusals(*set, threads);
  }
  return tokenmill::test::finish();
}
