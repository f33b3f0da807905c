#include "threads/thread_pool.h"

#include <sched.h>
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <system_error>

#include "threads/fp_environment.h"
#include "threads/wait.h"

namespace tokenmill {
namespace {

constexpr int kMaxThreads = 1024;

// Pins the calling thread for the duration of a run and gives its own mask back afterwards: threads that the
// caller starts later must not inherit one CPU.
class ScopedPin {
 public:
  explicit ScopedPin(const cpu_set_t* cpus) {
    if (cpus == nullptr || pthread_getaffinity_np(pthread_self(), sizeof(saved_), &saved_) != 0) return;
    pinned_ = pthread_setaffinity_np(pthread_self(), sizeof(*cpus), cpus) == 0;
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

// This thread's place in its pool, where WorkPhases finds it.
class ScopedPlace {
 public:
  ScopedPlace(PieceHolder& own, PieceHolders& all) : outer_(this_pool_place()) {
    own.adopt_this_thread();
    this_pool_place() = {&own, &all};
  }
  ~ScopedPlace() { this_pool_place() = outer_; }
  ScopedPlace(const ScopedPlace&) = delete;
  ScopedPlace& operator=(const ScopedPlace&) = delete;

 private:
  PoolPlace outer_;
};

std::vector<cpu_set_t> checked_masks(int threads, const std::vector<CpuSet>& cpus) {
  if (threads < 1 || threads > kMaxThreads) {
    throw std::invalid_argument("threads must be 1 to " + std::to_string(kMaxThreads) + ", not " +
                                std::to_string(threads));
  }
  if (cpus.empty()) return {};
  if (cpus.size() != static_cast<size_t>(threads)) {
    throw std::invalid_argument("cpus places " + std::to_string(cpus.size()) + " of " + std::to_string(threads) +
                                " threads");
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    throw std::system_error(errno, std::generic_category(), "sched_getaffinity");
  }
  std::vector<cpu_set_t> masks;
  for (const CpuSet& set : cpus) {
    if (set.empty()) throw std::invalid_argument("cpus gives a thread no CPU");
    cpu_set_t mask;
    CPU_ZERO(&mask);
    for (const int cpu : set) {
      if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &allowed)) {
        throw std::invalid_argument("CPU " + std::to_string(cpu) + " is not in the affinity mask of this process");
      }
      CPU_SET(cpu, &mask);
    }
    masks.push_back(mask);
  }
  return masks;
}

}  // namespace

ThreadPool::ThreadPool(int threads, const std::vector<CpuSet>& cpus)
    : count_(threads), cpus_(checked_masks(threads, cpus)), holders_(threads) {
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
    stop();
    throw std::system_error(error, std::generic_category(), "starting an engine thread");
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  // Release: who sees the new run sees that it is the end.
  state_.fetch_add(1U << 16, std::memory_order_release);
  state_.notify_all();
  for (const Worker& worker : workers_) pthread_join(worker.thread, nullptr);
}

void ThreadPool::run_erased(ErasedJob job, void* context) {
  const ScopedFpEnvironment environment;
  const ScopedPin pin(cpus_.empty() ? nullptr : cpus_.data());
  if (count_ == 1) {
    job(context, 0);
    return;
  }
  const ScopedPlace place(holders_[0], holders_);
  job_ = job;
  context_ = context;
  // The last run is closed and empty, so nobody else writes state_ now. Release: who joins sees the job and its data.
  const uint32_t number = run_number(state_.load(std::memory_order_relaxed)) + 1;
  state_.store(number << 16, std::memory_order_release);
  state_.notify_all();
  job(context, 0);
  // Acquire: what workers that left have written is seen by the caller. Nobody joins after this, so job_ and context_
  // may be changed once the last one has left.
  uint32_t state = state_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
  while ((state & kInside) != 0) {
    wait_for_change(state_, state, kPhaseSpins);
    state = state_.load(std::memory_order_acquire);
  }
}

bool ThreadPool::join_run(uint32_t& seen) {
  uint32_t state = state_.load(std::memory_order_acquire);
  while ((state & kClosed) == 0 && run_number(state) != seen) {
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) {
      seen = run_number(state);
      return true;
    }
  }
  return false;
}

void ThreadPool::leave_run() {
  // Release: the caller sees this worker's writes. Only a caller that has closed the run can be waiting for it.
  const uint32_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
  if ((before & kClosed) != 0 && (before & kInside) == 1) state_.notify_all();
}

void ThreadPool::worker_main(int index) {
  const ScopedFpEnvironment environment;
  char name[16];
  std::snprintf(name, sizeof(name), "tokenmill-%d", index);
  pthread_setname_np(pthread_self(), name);
  if (!cpus_.empty()) {
    const cpu_set_t& set = cpus_[static_cast<size_t>(index)];
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
  }
  const ScopedPlace place(holders_[index], holders_);
  uint32_t seen = 0;  // the run that this thread took part in last; runs begin at 1
  int spins = 0;
  for (;;) {
    const uint32_t state = state_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (join_run(seen)) {
      job_(context_, index);
      leave_run();
      spins = kIdleSpins;
      continue;
    }
    wait_for_change(state_, state, spins);
  }
}

}  // namespace tokenmill
