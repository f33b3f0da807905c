#include "dispatch/compare_sets.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <limits>

#include "dispatch/compare_report.h"
#include "dispatch/kernel_registry.h"

namespace tokenmill {
namespace {

// A weight matrix packed by one set.
class Packed {
 public:
  Packed(const KernelSet& set, WeightFormat format, const std::vector<uint8_t>& file, int64_t rows, int64_t k)
      : panels_((rows + set.panel_rows - 1) / set.panel_rows),
        panel_bytes_(set.panel_bytes(format, k)),
        bytes_(unsigned_size(panels_) * panel_bytes_) {
    const uint64_t file_row_bytes = row_bytes(format, unsigned_size(k));
    for (int64_t panel = 0; panel < panels_; ++panel) {
      const int64_t first = panel * set.panel_rows;
      set.pack_panel(format, file.data() + unsigned_size(first) * file_row_bytes,
                     std::min<int64_t>(set.panel_rows, rows - first), k,
                     bytes_.data() + unsigned_size(panel) * panel_bytes_);
    }
    matrix_ = {.format = format, .rows = rows, .k = k, .data = bytes_.data(), .panel_bytes = panel_bytes_};
  }
  const PackedMatrix& matrix() const { return matrix_; }
  int64_t panels() const { return panels_; }
  uint64_t total_bytes() const { return unsigned_size(panels_) * panel_bytes_; }

 private:
  int64_t panels_;
  uint64_t panel_bytes_;
  AlignedBytes bytes_;
  PackedMatrix matrix_;
};

struct Quantized {
  Quantized(int64_t rows, int64_t k)
      : q(unsigned_size(rows * k), 99),
        scale(unsigned_size(rows * k / kGroupSize), kUntouched),
        half_sums(unsigned_size(rows * k / kHalfGroupSize), 9999),
        nonfinite(unsigned_size(rows), 7) {}
  QuantizedOut out() { return {q.data(), scale.data(), half_sums.data()}; }

  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int16_t> half_sums;
  std::vector<uint8_t> nonfinite;
};

std::vector<float> multiply(const KernelSet& set, const Packed& weights, Activations x, int64_t y_stride) {
  std::vector<float> y(unsigned_size(x.rows * y_stride), kUntouched);
  const WeightFormat format = weights.matrix().format;
  std::vector<int32_t> packed(unsigned_size(set.packed_activation_words(format, x.rows, x.k)));
  for (int64_t row = x.rows - 1; row >= 0; --row) {  // row by row, as many threads would do it
    set.pack_activations(format, x, row, row + 1, packed.data());
  }
  x.packed = packed.data();
  const auto matmul = set.matmul[static_cast<int>(format)];
  const int64_t middle = weights.panels() / 3;  // two calls, as two threads would make them
  matmul(weights.matrix(), x, 0, middle, y.data(), y_stride);
  matmul(weights.matrix(), x, middle, weights.panels(), y.data(), y_stride);
  return y;
}

// A float around the range of fp16: exactly between two halves, just beside, denormal, overflowing, infinite or NaN.
float random_near_half(TestRandom& random) {
  constexpr uint32_t kBelowHalf[] = {0, 0x1000, 0x0FFF, 0x1001, 0x1FFF};
  const auto bits = static_cast<uint32_t>(random.next());
  const uint32_t exponent = random.below(16) == 0 ? 255U : static_cast<uint32_t>(98 + random.below(48));
  return std::bit_cast<float>((bits & 0x807FE000U) | (exponent << 23) | kBelowHalf[random.below(5)]);
}

}  // namespace

std::string matmul_name(WeightFormat format) {
  std::string name = std::string("matmul_") + format_info(format).name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::string compare_packing(const KernelSet& set, WeightFormat format, ValueKind kind, int64_t rows, int64_t k,
                            uint64_t seed) {
  const std::string what =
      describe(std::string("pack_panel and unpack_row of ") + format_info(format).name, {{"rows", rows}, {"k", k}});
  TestRandom random(seed);
  const std::vector<uint8_t> file = random_weights(random, kind, format, rows, k);
  const Packed packed(set, format, file, rows, k);
  if (rows % set.panel_rows == 0 && packed.total_bytes() * 100 > file.size() * 102) {
    return what + ": the packed matrix takes more than 1.02 times the file's bytes";
  }
  std::vector<uint8_t> unpacked(file.size(), 0xA5);
  for (int64_t row = 0; row < rows; ++row) {
    set.unpack_row(packed.matrix(), row, unpacked.data() + unsigned_size(row) * row_bytes(format, unsigned_size(k)));
  }
  return difference(what, unpacked, file);
}

std::string compare_matmul(const KernelSet& set, WeightFormat format, ValueKind kind, const MatmulShape& shape,
                           uint64_t seed) {
  const KernelSet& reference = reference_kernel_set();
  TestRandom random(seed);
  const std::vector<uint8_t> file = random_weights(random, kind, format, shape.rows, shape.k);
  const std::vector<float> x = random_floats(random, kind, shape.tokens * shape.k);
  Activations activations{.rows = shape.tokens, .k = shape.k, .f32 = x.data()};
  const bool integer = format_info(format).integer;
  Quantized quantized(shape.tokens, integer ? shape.k : 0);
  if (integer) {
    reference.quantize_rows(x.data(), shape.k, shape.tokens, shape.k, quantized.out(), quantized.nonfinite.data());
    activations.q = quantized.q.data();
    activations.scale = quantized.scale.data();
    activations.half_sums = quantized.half_sums.data();
  }
  const int64_t y_stride = shape.rows + 3;
  const Packed packed(set, format, file, shape.rows, shape.k);
  const Packed packed_for_reference(reference, format, file, shape.rows, shape.k);
  const std::string what = matmul_name(format) + (set.activation_packing(format) < 0 ? "" : " after pack_activations");
  return difference(describe(what, {{"rows", shape.rows}, {"k", shape.k}, {"tokens", shape.tokens}}),
                    multiply(set, packed, activations, y_stride),
                    multiply(reference, packed_for_reference, activations, y_stride));
}

std::string compare_quantize_rows(const KernelSet& set, ValueKind kind, int64_t rows, int64_t k, uint64_t seed) {
  TestRandom random(seed);
  const int64_t stride = k + 5;
  std::vector<float> x = random_floats(random, kind, rows * stride);
  if (kind == ValueKind::extreme) {
    for (int64_t group = 0; group < rows * k / kGroupSize; group += 3) {  // groups around the smallest usable maximum
      const float scale = 8e-38F * random_float(random, ValueKind::plain);
      float* values = x.data() + (group * kGroupSize / k) * stride + group * kGroupSize % k;
      for (int i = 0; i < kGroupSize; ++i) {
        values[i] = scale * random.unit();
      }
    }
    x[unsigned_size(random.below(k))] = std::numeric_limits<float>::quiet_NaN();
    x[unsigned_size((rows - 1) * stride + random.below(k))] = -std::numeric_limits<float>::infinity();
  }
  Quantized got(rows, k);
  Quantized want(rows, k);
  set.quantize_rows(x.data(), stride, rows, k, got.out(), got.nonfinite.data());
  reference_kernel_set().quantize_rows(x.data(), stride, rows, k, want.out(), want.nonfinite.data());
  const std::string what = describe("quantize_rows", {{"rows", rows}, {"k", k}});
  return first_of({difference(what + ", flags", got.nonfinite, want.nonfinite), difference(what + ", q", got.q, want.q),
                   difference(what + ", scales", got.scale, want.scale),
                   difference(what + ", half sums", got.half_sums, want.half_sums)});
}

std::string compare_rms_norm(const KernelSet& set, ValueKind kind, int64_t rows, int64_t n, uint64_t seed) {
  TestRandom random(seed);
  const int64_t stride = n + 3;
  std::vector<float> in_place = random_floats(random, kind, rows * stride);
  const std::vector<float> x = in_place;
  const std::vector<float> weight = random_floats(random, kind, n);
  std::vector<float> got(x.size(), kUntouched);
  std::vector<float> want(x.size(), kUntouched);
  set.rms_norm(x.data(), stride, weight.data(), 1e-5F, rows, n, got.data(), stride);
  reference_kernel_set().rms_norm(x.data(), stride, weight.data(), 1e-5F, rows, n, want.data(), stride);
  const std::string what = describe("rms_norm", {{"rows", rows}, {"n", n}});
  std::string result = difference(what, got, want);
  if (result.empty()) {
    std::vector<float> expected = x;
    reference_kernel_set().rms_norm(x.data(), stride, weight.data(), 1e-5F, rows, n, expected.data(), stride);
    set.rms_norm(in_place.data(), stride, weight.data(), 1e-5F, rows, n, in_place.data(), stride);
    result = difference(what + ", in place", in_place, expected);
  }
  return result;
}

std::string compare_rope(const KernelSet& set, RopeStyle style, int64_t heads, int64_t head_dim, int64_t rotary_dim,
                         uint64_t seed) {
  TestRandom random(seed);
  std::vector<float> got = random_floats(random, ValueKind::plain, heads * head_dim);
  std::vector<float> want = got;
  const std::vector<float> cosines = random_floats(random, ValueKind::plain, rotary_dim / 2);
  const std::vector<float> sines = random_floats(random, ValueKind::plain, rotary_dim / 2);
  set.rope(got.data(), heads, head_dim, rotary_dim, style, cosines.data(), sines.data());
  reference_kernel_set().rope(want.data(), heads, head_dim, rotary_dim, style, cosines.data(), sines.data());
  return difference(describe("rope", {{"style", static_cast<int64_t>(style)},
                                      {"heads", heads},
                                      {"head_dim", head_dim},
                                      {"rotary_dim", rotary_dim}}),
                    got, want);
}

std::string compare_gated_activation(const KernelSet& set, Activation activation, ValueKind kind, int64_t n,
                                     uint64_t seed) {
  TestRandom random(seed);
  std::vector<float> gate = random_floats(random, kind, n);
  const std::vector<float> up = random_floats(random, kind, n);
  std::vector<float> got(gate.size(), kUntouched);
  std::vector<float> want(gate.size(), kUntouched);
  set.gated_activation(activation, gate.data(), up.data(), n, got.data());
  reference_kernel_set().gated_activation(activation, gate.data(), up.data(), n, want.data());
  set.gated_activation(activation, gate.data(), up.data(), n, gate.data());
  const std::string what = describe("gated_activation", {{"activation", static_cast<int64_t>(activation)}, {"n", n}});
  return first_of({difference(what, got, want), difference(what + ", in place", gate, want)});
}

std::string compare_add(const KernelSet& set, ValueKind kind, int64_t n, uint64_t seed) {
  TestRandom random(seed);
  std::vector<float> got = random_floats(random, kind, n);
  std::vector<float> want = got;
  const std::vector<float> y = random_floats(random, kind, n);
  set.add(got.data(), y.data(), n);
  reference_kernel_set().add(want.data(), y.data(), n);
  return difference(describe("add", {{"n", n}}), got, want);
}

std::string compare_store_kv(const KernelSet& set, ValueKind kind, int32_t head_dim, uint64_t seed) {
  TestRandom random(seed);
  const uint64_t page_elements = unsigned_size(head_dim) * kPageTokens;
  std::vector<uint16_t> got(2 * page_elements, 0xABCD);
  std::vector<uint16_t> want = got;
  for (int32_t slot = 0; slot < kPageTokens; slot += 3) {
    std::vector<float> key = random_floats(random, kind, head_dim);
    const std::vector<float> value = random_floats(random, kind, head_dim);
    if (kind == ValueKind::extreme) {  // any bits: halfway cases, denormal results, infinities, NaN
      for (float& element : key) {
        element = random_near_half(random);
      }
    }
    set.store_kv(key.data(), value.data(), head_dim, slot, got.data(), got.data() + page_elements);
    reference_kernel_set().store_kv(key.data(), value.data(), head_dim, slot, want.data(), want.data() + page_elements);
  }
  return difference(describe("store_kv", {{"head_dim", head_dim}}), got, want);
}

}  // namespace tokenmill
