// The threads that run a step together. All of them execute the same job and share its work by WorkPhases.
#pragma once
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "threads/piece_holder.h"

namespace tokenmill {

using CpuSet = std::vector<int>;

class ThreadPool {
 public:
  // `threads` >= 1, the caller of run() included. `cpus`: empty, or for each thread the CPUs that it may run on.
  // Throws std::invalid_argument for a count out of range, a thread without a CPU or a CPU outside the process's
  // affinity mask, and std::system_error when the operating system refuses a thread.
  ThreadPool(int threads, const std::vector<CpuSet>& cpus);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return count_; }

  // Calls job(thread_index) on the caller, index 0, and at most once on each other thread: one that wakes up after the
  // caller's call has returned takes no part. Returns when all calls have returned. The job must not throw, and must
  // not count on any thread but the caller. It runs under the contract's floating-point environment. One run at a time.
  template <class Job>
  void run(Job&& job) {
    run_erased([](void* context, int index) { (*static_cast<std::remove_reference_t<Job>*>(context))(index); },
               const_cast<void*>(static_cast<const void*>(&job)));
  }

 private:
  using ErasedJob = void (*)(void* context, int index);
  struct Worker {
    ThreadPool* pool;
    int index;
    pthread_t thread;
  };

  void run_erased(ErasedJob job, void* context);
  void worker_main(int index);
  bool join_run(uint32_t& seen);
  void leave_run();
  void stop();

  // One word says everything about the current run, so that a thread joins it or misses it, but never half:
  // bits 31-16 the run's number, bit 15 that nobody may join any more, bits 14-0 how many workers are inside.
  static constexpr uint32_t kClosed = 1U << 15;
  static constexpr uint32_t kInside = kClosed - 1;
  static uint32_t run_number(uint32_t state) { return state >> 16; }

  alignas(64) std::atomic<uint32_t> state_{kClosed};
  // Written by the caller before state_ opens a run, read by workers that have joined it.
  ErasedJob job_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> stopping_{false};
  int count_;
  std::vector<cpu_set_t> cpus_;  // by thread; empty: wherever the kernel likes
  PieceHolders holders_;
  std::vector<Worker> workers_;
};

}  // namespace tokenmill
