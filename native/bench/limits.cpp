#include "bench/limits.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace tokenmill {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kAhead = 8192;
constexpr int64_t kPiecesPerThread = 6;

// Two 64-bit lanes, in every x86-64 and 64-bit Arm: memory is much slower than such loads.
using Lanes = uint64_t __attribute__((vector_size(16)));

// Reads lines [0, lines) of streams that lie `stride` lines apart.
template <int kStreams>
uint64_t read_streams(const uint8_t* data, uint64_t lines, uint64_t stride) {
  constexpr int kVectors = kLine / sizeof(Lanes);
  Lanes sums[kVectors] = {};
  for (uint64_t line = 0; line < lines; ++line) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const uint8_t* at = data + (static_cast<uint64_t>(stream) * stride + line) * kLine;
      __builtin_prefetch(at + kAhead);
      const auto* vectors = reinterpret_cast<const Lanes*>(at);
      for (int i = 0; i < kVectors; ++i) sums[i] += vectors[i];
    }
  }
  const Lanes sum = sums[0] + sums[1] + sums[2] + sums[3];
  return sum[0] + sum[1];
}

using ReadStreams = uint64_t (*)(const uint8_t* data, uint64_t lines, uint64_t stride);

ReadStreams reader(int streams) {
  switch (streams) {
    case 1:
      return read_streams<1>;
    case 2:
      return read_streams<2>;
    case 4:
      return read_streams<4>;
    case 8:
      return read_streams<8>;
    case 16:
      return read_streams<16>;
    default:
      throw std::invalid_argument("streams must be 1, 2, 4, 8 or 16, not " + std::to_string(streams));
  }
}

}  // namespace

ReadBench::ReadBench(BenchThreads& threads, uint64_t bytes)
    : threads_(threads), memory_(bytes, false, threads.nodes()) {
  const auto total = static_cast<int64_t>(memory_.bytes());
  threads_.time(total, even_piece(total, threads_.size()), [&](int, int64_t begin, int64_t end) {
    std::memset(memory_.data() + begin, 1, static_cast<size_t>(end - begin));
  });
}

TimedWork ReadBench::run(int streams, const Repeats& repeats) {
  const ReadStreams read = reader(streams);
  const int64_t pieces = threads_.size() * kPiecesPerThread;
  const uint64_t piece_lines = memory_.bytes() / kLine / static_cast<uint64_t>(pieces);
  // Streams begin in different sets of the first-level cache, as panels do.
  constexpr uint64_t kSets = 64;
  constexpr uint64_t kSetsApart = 9;
  const uint64_t fair_share = piece_lines / static_cast<uint64_t>(streams);
  const uint64_t stride = fair_share > kSets ? (fair_share - kSetsApart) / kSets * kSets + kSetsApart : fair_share;
  std::atomic<uint64_t> used{0};  // so that the compiler keeps the reads
  TimedWork result;
  result.amount = static_cast<uint64_t>(pieces) * static_cast<uint64_t>(streams) * stride * kLine;
  result.seconds = repeat(repeats, [&] {
    return threads_.time(pieces, 1, [&](int, int64_t piece, int64_t) {
      const uint8_t* from = memory_.data() + static_cast<uint64_t>(piece) * piece_lines * kLine;
      used.fetch_add(read(from, stride, stride), std::memory_order_relaxed);
    });
  });
  return result;
}

TimedWork run_peak_loop(BenchThreads& threads, const PeakLoop& loop, const Repeats& repeats) {
  constexpr int64_t kRounds = 50000;  // of the order of a millisecond
  const int64_t pieces = threads.size() * kPiecesPerThread;
  TimedWork result;
  result.amount = static_cast<uint64_t>(pieces * loop.run(kRounds));
  result.seconds =
      repeat(repeats, [&] { return threads.time(pieces, 1, [&](int, int64_t, int64_t) { loop.run(kRounds); }); });
  return result;
}

}  // namespace tokenmill
