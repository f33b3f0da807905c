#include "threads/thread_pool.h"

#include <sched.h>
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <system_error>

#include "threads/fp_environment.h"

namespace tokenmill {
namespace {

constexpr int kMaxThreads = 1024;

// About 20 to 60 microseconds of polling before a thread sleeps: longer than the imbalance of a phase, far shorter
// than a time slice, so a thread that waits for one without a core gives its own core up soon.
constexpr int kBarrierSpins = 1000;
// Between steps the caller plans and samples; workers that poll over that gap save a wake-up of about 50 microseconds.
constexpr int kIdleSpins = 4000;

void relax() {
#if defined(__x86_64__)
  asm volatile("pause" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Waits until `value` differs from `old`. The acquire load pairs with the release of the thread that changed it.
void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  value.wait(old, std::memory_order_acquire);  // a futex: returns only once the value has changed
}

cpu_set_t one_cpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return set;
}

// Pins the calling thread for the duration of a run and gives its own mask back afterwards: threads that the
// caller starts later must not inherit one CPU.
class ScopedPin {
 public:
  explicit ScopedPin(int cpu) {
    if (cpu < 0 || pthread_getaffinity_np(pthread_self(), sizeof(saved_), &saved_) != 0) return;
    const cpu_set_t set = one_cpu(cpu);
    pinned_ = pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
  }
  ~ScopedPin() {
    if (pinned_) pthread_setaffinity_np(pthread_self(), sizeof(saved_), &saved_);
  }
  ScopedPin(const ScopedPin&) = delete;
  ScopedPin& operator=(const ScopedPin&) = delete;

 private:
  cpu_set_t saved_;
  bool pinned_ = false;
};

void check_cpus(int threads, const std::vector<int>& cpus) {
  if (threads < 1 || threads > kMaxThreads) {
    throw std::invalid_argument("threads must be 1 to " + std::to_string(kMaxThreads) + ", not " +
                                std::to_string(threads));
  }
  if (cpus.empty()) return;
  if (cpus.size() != static_cast<size_t>(threads)) {
    throw std::invalid_argument("cpus names " + std::to_string(cpus.size()) + " CPUs for " + std::to_string(threads) +
                                " threads");
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    throw std::system_error(errno, std::generic_category(), "sched_getaffinity");
  }
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &allowed)) {
      throw std::invalid_argument("CPU " + std::to_string(cpu) + " is not in the affinity mask of this process");
    }
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads, const std::vector<int>& cpus) : count_(threads), cpus_(cpus) {
  check_cpus(threads, cpus);
  // Workers block every signal, so that Ctrl-C and SIGTERM reach the thread that handles them.
  sigset_t all;
  sigset_t saved;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &saved);
  workers_.reserve(static_cast<size_t>(threads));
  int error = 0;
  for (int index = 1; index < threads && error == 0; ++index) {
    workers_.push_back({this, index, {}});
    Worker& worker = workers_.back();
    error = pthread_create(
        &worker.thread, nullptr,
        [](void* argument) -> void* {
          const Worker* self = static_cast<Worker*>(argument);
          self->pool->worker_main(self->index);
          return nullptr;
        },
        &worker);
    if (error != 0) workers_.pop_back();
  }
  pthread_sigmask(SIG_SETMASK, &saved, nullptr);
  if (error != 0) {
    stop(static_cast<int>(workers_.size()));
    throw std::system_error(error, std::generic_category(), "starting an engine thread");
  }
}

ThreadPool::~ThreadPool() { stop(static_cast<int>(workers_.size())); }

void ThreadPool::stop(int started) {
  // A null job tells workers to return. Release: they must see job_ once they see the epoch.
  job_ = nullptr;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (int i = 0; i < started; ++i) pthread_join(workers_[static_cast<size_t>(i)].thread, nullptr);
}

void ThreadPool::run_erased(ErasedJob job, void* context) {
  const ScopedFpEnvironment environment;
  if (count_ == 1 && cpus_.empty()) {
    next_work_.store(0, std::memory_order_relaxed);
    job(context, 0);
    return;
  }
  const ScopedPin pin(cpus_.empty() ? -1 : cpus_[0]);
  job_ = job;
  context_ = context;
  next_work_.store(0, std::memory_order_relaxed);
  // Release: whoever sees the new epoch sees the job, its data and the zeroed counter.
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  job(context, 0);
  barrier();  // every worker has returned from the job and will not read job_ or context_ again
}

void ThreadPool::worker_main(int index) {
  const ScopedFpEnvironment environment;
  char name[16];
  std::snprintf(name, sizeof(name), "tokenmill-%d", index);
  pthread_setname_np(pthread_self(), name);
  if (!cpus_.empty()) {
    const cpu_set_t set = one_cpu(cpus_[static_cast<size_t>(index)]);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  }
  // The pool is built with epoch 0 and raised only by run() and stop(), so no change can be missed from here on;
  // run() cannot raise it twice before this thread has met it at the barrier that ends the run.
  uint32_t seen = 0;
  int spins = 0;
  for (;;) {
    wait_for_change(epoch_, seen, spins);
    ++seen;
    if (job_ == nullptr) return;
    job_(context_, index);
    barrier();
    spins = kIdleSpins;
  }
}

void ThreadPool::barrier() {
  if (count_ == 1) {
    next_work_.store(0, std::memory_order_relaxed);
    return;
  }
  // Relaxed: this thread saw the current generation when it left the last barrier (or it is still the first one),
  // and it cannot change before this thread has arrived.
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  // Acquire and release: the last to arrive gathers everybody's writes, and hands them on with the generation.
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(count_)) {
    // Nobody touches these two until the generation changes, so relaxed stores are enough.
    arrived_.store(0, std::memory_order_relaxed);
    next_work_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    generation_.notify_all();
  } else {
    wait_for_change(generation_, generation, kBarrierSpins);
  }
}

}  // namespace tokenmill
