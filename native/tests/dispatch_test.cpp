// Detection from register values, the choice of a set and its refusals, and that the self-test catches a wrong kernel.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "check.h"
#include "dispatch/borrowed_functions.h"
#include "dispatch/detect_cpu.h"
#include "dispatch/kernel_registry.h"
#include "dispatch/select_kernels.h"
#include "dispatch/self_test.h"
#include "sets_to_test.h"

namespace {

using tokenmill::CpuFeature;
using tokenmill::CpuFeatureMask;
using tokenmill::KernelSet;
using tokenmill::select_kernel_set;
using tokenmill::X86Registers;
using tokenmill::test::expect;

constexpr double kSelfTestSeconds = 0.5;

bool has(CpuFeatureMask mask, CpuFeature feature) { return (mask & tokenmill::feature_bit(feature)) != 0; }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// An Ice Lake server: all bits set that a set may need.
X86Registers full_registers() {
  X86Registers registers;
  registers.leaf1_ecx = (1U << 27) | (1U << 28) | (1U << 12) | (1U << 29);
  registers.leaf7_ebx = (1U << 5) | (1U << 8) | (1U << 16) | (1U << 17) | (1U << 30) | (1U << 31);
  registers.leaf7_ecx = (1U << 1) | (1U << 11);
  registers.xcr0 = 0xE7;
  return registers;
}

void check_x86_detection() {
  const CpuFeatureMask full = features_from_x86(full_registers());
  expect(has(full, CpuFeature::avx2) && has(full, CpuFeature::fma) && has(full, CpuFeature::avx512_vnni) &&
             !has(full, CpuFeature::amx_int8),
         "features of a full register set");

  X86Registers no_avx512_state = full_registers();
  no_avx512_state.xcr0 = 0x7;
  const CpuFeatureMask avx_only = features_from_x86(no_avx512_state);
  expect(
      has(avx_only, CpuFeature::avx2) && !has(avx_only, CpuFeature::avx512f) && !has(avx_only, CpuFeature::avx512_vnni),
      "AVX-512 counts only where the system saves its registers");

  X86Registers no_avx_state = full_registers();
  no_avx_state.xcr0 = 0x3;
  const CpuFeatureMask none = features_from_x86(no_avx_state);
  expect(!has(none, CpuFeature::avx) && !has(none, CpuFeature::fma) && has(none, CpuFeature::bmi2),
         "AVX counts only where the system saves its registers");

  X86Registers no_osxsave = full_registers();
  no_osxsave.leaf1_ecx &= ~(1U << 27);
  expect(!has(features_from_x86(no_osxsave), CpuFeature::avx), "without OSXSAVE no register state is saved");
  expect(features_in_cpuid(no_osxsave) == full && features_in_cpuid(no_avx512_state) == full,
         "what CPUID shows does not depend on the register states that are saved");

  X86Registers amx = full_registers();
  amx.leaf7_edx = (1U << 24) | (1U << 25);
  expect(!has(features_from_x86(amx), CpuFeature::amx_tile), "AMX counts only where the system saves its tiles");
  amx.xcr0 |= uint64_t{3} << 17;
  expect(has(features_from_x86(amx), CpuFeature::amx_int8), "AMX with its state saved");
}

void check_report() {
  const tokenmill::CpuReport report = tokenmill::report_cpu();
  expect((report.usable & ~report.reported) == 0 && (report.reported & ~report.known) == 0,
         "usable features are reported, and reported ones known");
  expect(report.usable == tokenmill::detect_cpu_features(), "the report is what sets are chosen by");
}

void check_aarch64_detection() {
  const CpuFeatureMask graviton2 = tokenmill::features_from_aarch64((1U << 1) | (1U << 20), 0);
  expect(has(graviton2, CpuFeature::asimd) && has(graviton2, CpuFeature::asimddp) && !has(graviton2, CpuFeature::sve) &&
             !has(graviton2, CpuFeature::i8mm),
         "features of Neoverse N1");
  const CpuFeatureMask graviton3 =
      tokenmill::features_from_aarch64((1U << 1) | (1U << 20) | (1U << 22), (1U << 13) | (1U << 9));
  expect(has(graviton3, CpuFeature::sve) && has(graviton3, CpuFeature::i8mm) && has(graviton3, CpuFeature::svei8mm) &&
             !has(graviton3, CpuFeature::sve2),
         "features of Neoverse V1");
}

void check_selection() {
  const CpuFeatureMask everything = ~CpuFeatureMask{0};
  const auto& sets = tokenmill::kernel_sets();
  expect(sets.back()->rank == 0 && std::string(sets.back()->name) == "reference", "the reference has the lowest rank");
  for (uint64_t i = 1; i < sets.size(); ++i) {
    expect(sets[i - 1]->rank > sets[i]->rank, "ranks are distinct and descend");
  }
  if (sets.size() > 1) {
    expect(select_kernel_set("", everything).set == sets.front(), "the best usable set is chosen");
  }
  for (const KernelSet* set : sets) {
    expect(select_kernel_set(set->name, everything).set == set, std::string("forced ") + set->name);
    // Exactly what is required is enough, and each missing bit is named.
    expect(select_kernel_set(set->name, set->required).set == set, std::string("required is enough for ") + set->name);
    for (int bit = 0; bit < tokenmill::kCpuFeatureCount; ++bit) {
      const CpuFeatureMask mask = tokenmill::feature_bit(static_cast<CpuFeature>(bit));
      if ((set->required & mask) == 0) {
        continue;
      }
      const tokenmill::KernelSelection selection = select_kernel_set(set->name, everything & ~mask);
      expect(selection.set == nullptr && contains(selection.error, tokenmill::kCpuFeatureNames[bit]) &&
                 contains(selection.error, "reference"),
             std::string("a forced set that cannot run is refused: ") + selection.error);
      expect(select_kernel_set("", everything & ~mask).set != set, "an unusable set is not chosen");
    }
  }
  const tokenmill::KernelSelection none = select_kernel_set("", 0);
  expect(none.set == nullptr && contains(none.error, "TOKENMILL_KERNELS=reference"),
         "the reference is never chosen in silence: " + none.error);
  expect(select_kernel_set("reference", 0).set == &tokenmill::reference_kernel_set(), "the reference can be forced");
  const tokenmill::KernelSelection unknown = select_kernel_set("no_such_set", everything);
  expect(unknown.set == nullptr && contains(unknown.error, "no_such_set") && contains(unknown.error, "reference"),
         "an unknown set is refused: " + unknown.error);
}

void check_borrowed_functions() {
  const KernelSet& reference = tokenmill::reference_kernel_set();
  expect(borrowed_functions(reference).empty(), "the reference borrows from nobody");
  KernelSet copy = reference;  // at another address: a set that borrows everything
  expect(borrowed_functions(copy).size() == tokenmill::self_test_functions().size(), "all functions are compared");
  for (const std::string& name : tokenmill::self_test_functions()) {
    copy = reference;
    expect(tokenmill::break_function(copy, name), "every function can be replaced: " + name);
    const std::vector<std::string> borrowed = borrowed_functions(copy);
    expect(std::find(borrowed.begin(), borrowed.end(), name) == borrowed.end(), name + " of its own is not borrowed");
  }
}

// The fastest of a few runs, as other processes may disturb one.
double self_test_seconds(const KernelSet& set) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    static_cast<void>(self_test(set));
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// A product that is right but for the last bit of one value, in a step of 13 tokens.
const KernelSet* flawed_set = nullptr;
void flawed_matmul(const tokenmill::PackedMatrix& w, const tokenmill::Activations& x, int64_t begin, int64_t end,
                   float* y, int64_t stride) {
  flawed_set->matmul[static_cast<int>(tokenmill::WeightFormat::q5_0)](w, x, begin, end, y, stride);
  if (x.rows == 13 && begin == 0 && end > begin) {
    y[12 * stride] = std::nextafter(y[12 * stride], INFINITY);
  }
}

void check_that_one_bit_is_seen(const KernelSet& set) {
  flawed_set = &set;
  KernelSet flawed = set;
  flawed.matmul[static_cast<int>(tokenmill::WeightFormat::q5_0)] = flawed_matmul;
  const std::vector<std::string> failures = self_test(flawed);
  expect(failures.size() == 1 && contains(failures.front(), "matmul_q5_0") && contains(failures.front(), "tokens 13"),
         std::string(set.name) + ": the self-test must see one wrong bit of one value");
}

void check_self_test(const KernelSet& set) {
  for (const std::string& failure : self_test(set)) {
    tokenmill::test::fail(std::string(set.name) + ": " + failure);
  }
  if (!tokenmill::test::is_usable(set)) {
    return;  // emulation is slow, and what follows is the same for every set
  }
  for (const std::string& name : tokenmill::self_test_functions()) {
    if (name == "pack_activations" && set.activation_packing(tokenmill::WeightFormat::q4_0) < 0) {
      continue;  // nothing reads what it would write
    }
    ::setenv("TOKENMILL_TEST_BREAK_KERNEL", name.c_str(), 1);
    const std::vector<std::string> failures = self_test(set);
    expect(!failures.empty() && contains(failures.front(), name),
           std::string(set.name) + ": the self-test must see and name the broken " + name);
  }
  ::setenv("TOKENMILL_TEST_BREAK_KERNEL", "no_such_function", 1);
  expect(self_test(set).size() == 1, "a misspelt function to break is an error");
  ::unsetenv("TOKENMILL_TEST_BREAK_KERNEL");
}

}  // namespace

int main() {
  check_x86_detection();
  check_report();
  check_aarch64_detection();
  check_selection();
  check_borrowed_functions();
  check_self_test(tokenmill::reference_kernel_set());
  for (const KernelSet* set : tokenmill::test::sets_to_test()) {
    check_self_test(*set);
    check_that_one_bit_is_seen(*set);
    const double seconds = self_test_seconds(*set);
    std::printf("self-test of %s: %.3f s\n", set->name, seconds);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (missing_features(*set, tokenmill::detect_cpu_features()).empty()) {  // emulation and sanitizers are slower
      expect(seconds < kSelfTestSeconds, std::string(set->name) + ": the self-test takes too long");
    }
#endif
  }
  return tokenmill::test::finish();
}
