#include "threads/piece_holder.h"

#include <time.h>
#include <unistd.h>

#include <chrono>

#include "threads/wait.h"

namespace tokenmill {
namespace {

// Two looks at a thread's clock this far apart: long against a system call, short against a time slice.
constexpr std::chrono::microseconds kLook{30};

int64_t nanoseconds(const timespec& time) { return int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec; }

}  // namespace

PoolPlace& this_pool_place() {
  thread_local PoolPlace place;
  return place;
}

void PieceHolder::adopt_this_thread() {
  thread_id_ = gettid();
  if (pthread_getcpuclockid(pthread_self(), &clock_) != 0) clock_ = 0;
  CPU_ZERO(&home_);
  sched_getaffinity(0, sizeof(home_), &home_);
  state_.store(kEmpty, std::memory_order_relaxed);
}

int64_t PieceHolder::cpu_time_ns() const {
  timespec time{};
  return clock_ != 0 && clock_gettime(clock_, &time) == 0 ? nanoseconds(time) : -1;
}

void PieceHolder::bring_to(int cpu) {
  uint32_t expected = kHolding;
  if (!state_.compare_exchange_strong(expected, kMoving, std::memory_order_acquire)) return;
  cpu_set_t there;
  CPU_ZERO(&there);
  CPU_SET(cpu, &there);
  sched_setaffinity(thread_id_, sizeof(there), &there);
  // Release: the thread that goes home does so after this change of its mask.
  state_.store(kMoved, std::memory_order_release);
}

void PieceHolder::go_home() {
  while (state_.load(std::memory_order_acquire) != kMoved) relax_core();
  state_.store(kEmpty, std::memory_order_relaxed);
  sched_setaffinity(0, sizeof(home_), &home_);
}

void PieceHolders::help_the_stopped() {
  if (helping_.exchange(true, std::memory_order_acquire)) return;
  const int here = sched_getcpu();
  for (size_t i = 0; i < holders_.size(); ++i) clocks_[i] = holders_[i].holds() ? holders_[i].cpu_time_ns() : -1;
  const auto begin = std::chrono::steady_clock::now();
  auto now = begin;
  while (now - begin < kLook) {
    relax_core();
    now = std::chrono::steady_clock::now();
  }
  const int64_t passed = std::chrono::nanoseconds(now - begin).count();
  for (size_t i = 0; i < holders_.size(); ++i) {
    if (clocks_[i] < 0 || !holders_[i].holds()) continue;
    const int64_t used = holders_[i].cpu_time_ns() - clocks_[i];
    if (here >= 0 && used >= 0 && used < passed / 8) {
      holders_[i].bring_to(here);
      break;  // one thread to one free core
    }
  }
  helping_.store(false, std::memory_order_release);
}

}  // namespace tokenmill
