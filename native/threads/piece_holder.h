// Who has a piece of work in hand, and help for a thread that lost its core with one.
//
// A phase of a step is over when its last piece is. A thread whose core the kernel gives to another program for a time
// slice, some milliseconds, would hold everybody up that long with work of some microseconds. Pinned threads cannot
// flee, and the kernel's balancer looks too rarely. So a thread that waits looks at the clocks of those that hold
// pieces: one whose clock stands still is brought to the waiting thread's core, which is free now, and goes home when
// its piece is done; there it waits for its core with empty hands.
#pragma once
#include <pthread.h>
#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <vector>

namespace tokenmill {

// One thread of a pool.
class PieceHolder {
 public:
  PieceHolder() = default;
  PieceHolder(const PieceHolder&) = delete;
  PieceHolder& operator=(const PieceHolder&) = delete;

  // The calling thread is the one from now on; it may run where it may run now. Before anybody can look.
  void adopt_this_thread();

  // Release: who sees the piece sees what adopt_this_thread() wrote.
  void take() { state_.store(kHolding, std::memory_order_release); }
  // After the piece's results are published: going home may take a time slice.
  void put_down() {
    uint32_t expected = kHolding;
    if (!state_.compare_exchange_strong(expected, kEmpty, std::memory_order_relaxed)) go_home();
  }

  bool holds() const { return state_.load(std::memory_order_acquire) == kHolding; }
  // CPU time that the thread has used, in nanoseconds; negative where the kernel does not say.
  int64_t cpu_time_ns() const;
  // Brings the thread to a CPU if it still holds its piece.
  void bring_to(int cpu);

 private:
  static constexpr uint32_t kEmpty = 0;
  static constexpr uint32_t kHolding = 1;
  static constexpr uint32_t kMoving = 2;  // another thread is about to change this one's mask
  static constexpr uint32_t kMoved = 3;

  void go_home();

  alignas(64) std::atomic<uint32_t> state_{kEmpty};
  pid_t thread_id_ = 0;
  clockid_t clock_ = 0;
  cpu_set_t home_{};
};

// The holders of a pool.
class PieceHolders {
 public:
  explicit PieceHolders(int count) : holders_(static_cast<size_t>(count)) {}

  PieceHolder& operator[](int thread) { return holders_[static_cast<size_t>(thread)]; }
  // Called by a thread of the pool that has waited for a while and is about to sleep.
  void help_the_stopped();

 private:
  std::vector<PieceHolder> holders_;
  std::vector<int64_t> clocks_ = std::vector<int64_t>(holders_.size());  // of the helping thread
  std::atomic<bool> helping_{false};                                     // one thread at a time
};

// What this thread is to its pool while it runs a job; null outside.
struct PoolPlace {
  PieceHolder* own = nullptr;
  PieceHolders* all = nullptr;
};
PoolPlace& this_pool_place();

}  // namespace tokenmill
