// The thread pool: every thread runs every job, barriers separate phases, work is handed out once, waiting costs no CPU
// time for long, and the caller gets its floating-point environment and affinity back.
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

namespace {

using tokenmill::ThreadPool;
using tokenmill::test::expect;

double process_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void test_phases(int threads) {
  ThreadPool pool(threads, {});
  constexpr int64_t kItems = 37;
  constexpr int kPhases = 50;
  const std::string name = std::to_string(threads) + " threads: ";
  std::vector<int> calls(static_cast<size_t>(threads), 0);
  std::vector<int> done(kItems, 0);  // plain ints: a missing barrier is a data race that ThreadSanitizer sees
  for (int run = 0; run < 20; ++run) {
    pool.run([&](int thread) {
      ++calls[static_cast<size_t>(thread)];
      for (int phase = 0; phase < kPhases; ++phase) {
        for (int64_t i = pool.claim(3); i < kItems; i = pool.claim(3)) {
          for (int64_t item = i; item < i + 3 && item < kItems; ++item) ++done[static_cast<size_t>(item)];
        }
        pool.barrier();
        int sum = 0;
        for (const int count : done) sum += count;
        if (sum != (run * kPhases + phase + 1) * kItems) expect(thread != 0, name + "work lost or done twice");
        pool.barrier();
      }
    });
  }
  for (const int count : calls) expect(count == 20, name + "a thread missed a job");
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
  ThreadPool pool(2, cpus);
  std::vector<int> seen(2, -1);
  pool.run([&](int thread) { seen[static_cast<size_t>(thread)] = sched_getcpu(); });
  expect(seen == cpus, "threads run on the CPUs they are pinned to");
  cpu_set_t after;
  CPU_ZERO(&after);
  sched_getaffinity(0, sizeof(after), &after);
  expect(CPU_EQUAL(&before, &after) != 0, "the caller's affinity is given back");
}

template <class Make>
void expect_refused(Make make, const std::string& what) {
  try {
    make();
    tokenmill::test::fail(what + " was accepted");
  } catch (const std::invalid_argument&) {
    // as it should be
  }
}

void test_bad_arguments() {
  expect_refused([] { ThreadPool(0, {}); }, "no thread");
  expect_refused([] { ThreadPool(100'000, {}); }, "too many threads");
  expect_refused([] { ThreadPool(2, {0}); }, "fewer CPUs than threads");
  expect_refused([] { ThreadPool(1, {-1}); }, "a negative CPU");
  expect_refused([] { ThreadPool(1, {100'000}); }, "an absent CPU");
}

}  // namespace

int main() {
  for (const int threads : {1, 2, 3, 9}) test_phases(threads);
  test_float_environment();
  test_idle_threads_sleep();
  test_pinning();
  test_bad_arguments();
  return tokenmill::test::finish();
}
