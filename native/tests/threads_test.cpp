// The thread pool: phases follow each other, work is handed out once, late threads are not waited for, idle ones cost
// no CPU time, and the caller gets its floating-point environment and affinity back.
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "threads/fp_environment.h"
#include "threads/thread_pool.h"
#include "threads/work_phases.h"

namespace {

using tokenmill::ThreadPool;
using tokenmill::WorkPhases;
using tokenmill::test::expect;

double process_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void test_phases(int threads) {
  ThreadPool pool(threads, {});
  WorkPhases work;
  constexpr int64_t kItems = 37;
  constexpr int kPhases = 50;
  const std::string name = std::to_string(threads) + " threads: ";
  std::vector<int> calls(static_cast<size_t>(threads), 0);
  std::vector<int> done(kItems, 0);  // plain ints: phases that overlap are a data race that ThreadSanitizer sees
  for (int run = 0; run < 20; ++run) {
    work.reset(3 * kPhases);
    pool.run([&](int thread) {
      ++calls[static_cast<size_t>(thread)];
      for (int phase = 0; phase < kPhases; ++phase) {
        work.run(3 * phase, kItems, 3, [&](int64_t begin, int64_t end) {
          for (int64_t item = begin; item < end; ++item) ++done[static_cast<size_t>(item)];
        });
        work.run(3 * phase + 1, 0, 1, [&](int64_t, int64_t) { expect(false, name + "work in an empty phase"); });
        work.run(3 * phase + 2, 1, 1, [&](int64_t, int64_t) {
          for (const int count : done) expect(count == run * kPhases + phase + 1, name + "work lost or done twice");
        });
      }
    });
  }
  expect(calls[0] == 20, name + "the caller runs every job");
  for (const int count : calls) expect(count <= 20, name + "a job ran twice on one thread");
}

// Ends and beginnings in quick succession: a thread that sleeps through one would hang here.
void test_many_short_runs(int threads) {
  ThreadPool pool(threads, {});
  WorkPhases work;
  int64_t sum = 0;
  constexpr int kRuns = 3000;
  for (int run = 0; run < kRuns; ++run) {
    work.reset(2);
    pool.run([&](int) {
      work.run(0, 3, 1, [](int64_t, int64_t) {});
      work.run(1, 1, 1, [&](int64_t, int64_t) { ++sum; });
    });
  }
  expect(sum == kRuns, "every run does its work once");
}

// Whoever holds no piece is not waited for.
void test_a_late_thread_holds_nobody_up() {
  ThreadPool pool(2, {});
  WorkPhases work;
  work.reset(100);
  std::atomic<bool> others_done{false};
  pool.run([&](int thread) {
    if (thread == 1) {
      for (int i = 0; i < 2000 && !others_done.load(); ++i) usleep(1000);
      expect(others_done.load(), "the caller waits for a thread that has no work in hand");
    }
    for (int phase = 0; phase < 100; ++phase) work.run(phase, 10, 1, [](int64_t, int64_t) {});
    if (thread == 0) others_done.store(true);
  });
}

void test_float_environment() {
  ThreadPool pool(3, {});
  expect(tokenmill::fp_environment_is_default(), "the test itself starts with the default environment");
#if defined(__x86_64__)
  const uint32_t flush_to_zero_upwards = 0x1F80U | 0x8040U | 0x4000U;
  asm volatile("ldmxcsr %0" : : "m"(flush_to_zero_upwards));
  expect(!tokenmill::fp_environment_is_default(), "a changed environment is seen");
  ThreadPool inherited(3, {});  // new threads inherit their creator's environment
  std::atomic<int> wrong{0};
  const auto job = [&](int) {
    volatile float tiny = 1e-39F;
    if (!tokenmill::fp_environment_is_default() || tiny * 0.5F == 0.0F) wrong.fetch_add(1);
  };
  pool.run(job);
  inherited.run(job);
  expect(wrong.load() == 0, "jobs run with round to nearest and denormals");
  expect(!tokenmill::fp_environment_is_default(), "the caller's environment is given back");
  const uint32_t usual = 0x1F80U;
  asm volatile("ldmxcsr %0" : : "m"(usual));
#endif
}

void test_idle_threads_sleep() {
  ThreadPool pool(4, {});
  pool.run([](int) {});
  usleep(50'000);  // the polling after a run is over by now
  const double before = process_cpu_seconds();
  usleep(300'000);
  expect(process_cpu_seconds() - before < 0.03, "idle threads use CPU time");
}

void test_pinning() {
  cpu_set_t before;
  CPU_ZERO(&before);
  sched_getaffinity(0, sizeof(before), &before);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE && cpus.size() < 2; ++cpu) {
    if (CPU_ISSET(cpu, &before)) cpus.push_back(cpu);
  }
  if (cpus.size() < 2) cpus.push_back(cpus[0]);
  ThreadPool pool(2, {{cpus[0]}, {cpus[1]}});
  std::vector<int> seen(2, -1);
  std::atomic<bool> both{false};
  pool.run([&](int thread) {
    seen[static_cast<size_t>(thread)] = sched_getcpu();
    if (thread == 1) both.store(true);
    for (int i = 0; i < 5000 && !both.load(); ++i) usleep(1000);  // so that the second thread does not miss the run
  });
  expect(seen == cpus, "threads run on the CPUs they are pinned to");
  cpu_set_t after;
  CPU_ZERO(&after);
  sched_getaffinity(0, sizeof(after), &after);
  expect(CPU_EQUAL(&before, &after) != 0, "the caller's affinity is given back");
}

template <class Make>
void expect_refused(Make make, const std::string& what) {
  bool refused = false;
  try {
    make();
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  expect(refused, what + " is refused");
}

void test_bad_arguments() {
  expect_refused([] { ThreadPool(0, {}); }, "no thread");
  expect_refused([] { ThreadPool(100'000, {}); }, "too many threads");
  expect_refused([] { ThreadPool(2, {{0}}); }, "fewer sets of CPUs than threads");
  expect_refused([] { ThreadPool(1, {{-1}}); }, "a negative CPU");
  expect_refused([] { ThreadPool(1, {{100'000}}); }, "an absent CPU");
  expect_refused([] { ThreadPool(2, {{0}, {}}); }, "a thread without a CPU");
}

}  // namespace

int main() {
  for (const int threads : {1, 2, 3, 9}) test_phases(threads);
  for (const int threads : {2, 3}) test_many_short_runs(threads);
  test_a_late_thread_holds_nobody_up();
  test_float_environment();
  test_idle_threads_sleep();
  test_pinning();
  test_bad_arguments();
  return tokenmill::test::finish();
}
