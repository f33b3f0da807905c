// The threads that run a step together. All of them execute the same job; inside it they meet at barriers and take
// work from a shared counter, so that a slow core holds nobody up for longer than one piece of work.
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace tokenmill {

class ThreadPool {
 public:
  // `threads` >= 1, the caller of run() included. `cpus`: empty, or one CPU number per thread to pin it to.
  // Throws std::invalid_argument for a count out of range or a CPU outside the process's affinity mask, and
  // std::system_error when the operating system refuses a thread.
  ThreadPool(int threads, const std::vector<int>& cpus);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return count_; }

  // Calls job(thread_index) once on every thread, index 0 being the caller, under the contract's floating-point
  // environment, and returns when all calls have returned. `job` must not throw. One run at a time.
  template <class Job>
  void run(Job&& job) {
    run_erased([](void* context, int index) { (*static_cast<std::remove_reference_t<Job>*>(context))(index); },
               const_cast<void*>(static_cast<const void*>(&job)));
  }

  // Inside a job, called by every thread: nobody passes before all have arrived; what was written before it by any
  // thread is seen after it by all. Sets the work counter to 0.
  void barrier();

  // Inside a job: takes `amount` pieces of the phase's work; returns the first one's number.
  int64_t claim(int64_t amount) { return next_work_.fetch_add(amount, std::memory_order_relaxed); }

 private:
  using ErasedJob = void (*)(void* context, int index);
  struct Worker {
    ThreadPool* pool;
    int index;
    pthread_t thread;
  };

  void run_erased(ErasedJob job, void* context);
  void worker_main(int index);
  void stop(int started);

  // Each group of atomics has its own cache line: the counter is hammered while others poll the generation.
  alignas(64) std::atomic<int64_t> next_work_{0};
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};
  // Written by the caller of run() before epoch_ is raised, read by workers after they saw it raised.
  ErasedJob job_ = nullptr;
  void* context_ = nullptr;
  int count_;
  std::vector<int> cpus_;
  std::vector<Worker> workers_;
};

}  // namespace tokenmill
