// The work of a job, phase after phase. A phase is over when its pieces are done, by whichever threads took them: a
// thread that lost its core holds the others up for no longer than the piece it has in hand (and is helped with that,
// see piece_holder.h), and joins them later.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "threads/piece_holder.h"
#include "threads/wait.h"

namespace tokenmill {

// How much of `total` a thread takes at a time when all of it costs the same. So many pieces per thread are enough that
// a core which loses its time slice leaves its work to the others.
inline int64_t even_piece(int64_t total, int threads) {
  constexpr int64_t kPiecesPerThread = 6;
  return std::max<int64_t>(1, total / (threads * kPiecesPerThread));
}

class WorkPhases {
 public:
  // Forgets all phases and makes room for `count` new ones. Called while no job runs.
  void reset(int64_t count) {
    if (count > capacity_) {
      phases_ = std::make_unique<Phase[]>(static_cast<std::size_t>(count));
      capacity_ = count;
    }
    for (int64_t i = 0; i < count; ++i) {
      phases_[static_cast<std::size_t>(i)].next.store(0, std::memory_order_relaxed);
      phases_[static_cast<std::size_t>(i)].done.store(0, std::memory_order_relaxed);
    }
    current_.store(0, std::memory_order_relaxed);
  }

  // Called by every thread of a job for phases 0, 1, 2 … in turn, with the same total and piece. Calls
  // work(begin, end) for pieces of [0, total) until all are taken, then waits until all are done. What any thread
  // wrote in this phase or before is seen by all after it.
  template <class Work>
  void run(int64_t phase, int64_t total, int64_t piece, Work work) {
    if (total == 0 || is_over(phase)) return;
    Phase& counters = phases_[static_cast<std::size_t>(phase)];
    const PoolPlace place = this_pool_place();
    // Relaxed: the counter only says who does what; the data of earlier phases came with `current_`.
    for (int64_t begin = counters.next.fetch_add(piece, std::memory_order_relaxed); begin < total;
         begin = counters.next.fetch_add(piece, std::memory_order_relaxed)) {
      const int64_t end = std::min(begin + piece, total);
      if (place.own != nullptr) place.own->take();
      work(begin, end);
      // Acquire and release: whoever does the last piece gathers the writes of all and hands them on with `current_`.
      const bool last = counters.done.fetch_add(end - begin, std::memory_order_acq_rel) + (end - begin) == total;
      if (last) {
        current_.store(static_cast<uint32_t>(phase + 1), std::memory_order_release);
        current_.notify_all();
      }
      if (place.own != nullptr) place.own->put_down();
      if (last) return;
    }
    // One load both judges and is waited on: a second one could see the last phase end in between, and nothing would
    // ever change it again.
    for (uint32_t current = current_.load(std::memory_order_acquire); static_cast<int64_t>(current) <= phase;
         current = current_.load(std::memory_order_acquire)) {
      if (poll_for_change(current_, current, kPhaseSpins)) continue;
      if (place.all != nullptr) place.all->help_the_stopped();
      current_.wait(current, std::memory_order_acquire);
    }
  }

 private:
  // Each on its own cache line: phases follow each other within microseconds, and late threads look at old ones.
  struct alignas(64) Phase {
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> done{0};
  };

  // Acquire: pairs with the release of the thread that ended the phase.
  bool is_over(int64_t phase) const { return static_cast<int64_t>(current_.load(std::memory_order_acquire)) > phase; }

  // Shares its cache line with what is only read while a job runs.
  std::atomic<uint32_t> current_{0};  // phases before this one are over
  std::unique_ptr<Phase[]> phases_;
  int64_t capacity_ = 0;
};

}  // namespace tokenmill
