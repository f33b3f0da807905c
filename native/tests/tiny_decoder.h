// A tiny model with random weights as a decoder, for tests of native code alone.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "contract/kernel_set.h"
#include "decoder/decoder.h"
#include "dispatch/test_data.h"

namespace tokenmill::test {

struct TinyShape {
  int32_t vocab = 50;
  int32_t embedding = 64;
  int32_t heads = 4;
  int32_t kv_heads = 2;
  int32_t head_dim = 16;
  int32_t hidden = 96;
  int64_t context = 600;
};

constexpr int kTinyWindow = 20;  // of the second of two layers

inline DecoderPlan tiny_plan(const TinyShape& shape) {
  DecoderPlan plan;
  const auto tensor = [&](const std::string& name) {
    plan.tensor_names.push_back(name);
    return static_cast<TensorIndex>(plan.tensor_names.size() - 1);
  };
  plan.context_length = shape.context;
  plan.model.vocab_size = shape.vocab;
  plan.model.embedding_dim = shape.embedding;
  plan.model.layer_count = 2;
  plan.model.norm_epsilon = 1e-5F;
  plan.model.token_embedding = tensor("embedding");
  plan.model.output_norm = tensor("output_norm");
  plan.model.output = {plan.model.token_embedding, kNoTensor};
  for (int i = 0; i < 2; ++i) {
    const std::string at = std::to_string(i) + ".";
    LayerPlan layer;
    layer.attention_norm = tensor(at + "attention_norm");
    layer.attention.head_count = shape.heads;
    layer.attention.kv_head_count = shape.kv_heads;
    layer.attention.head_dim = shape.head_dim;
    layer.attention.score_scale = 0.25F;
    layer.attention.window = i == 0 ? 0 : kTinyWindow;
    layer.attention.query = {tensor(at + "query"), tensor(at + "query_bias")};
    layer.attention.key = {tensor(at + "key"), kNoTensor};
    layer.attention.value = {tensor(at + "value"), kNoTensor};
    layer.attention.output = {tensor(at + "output"), kNoTensor};
    layer.attention.rope = {RopeStyle::half, shape.head_dim, 10000.0, 1.0, kNoTensor};
    layer.ffn_norm = tensor(at + "ffn_norm");
    layer.ffn.hidden = shape.hidden;
    layer.ffn.gate = {tensor(at + "gate"), kNoTensor};
    layer.ffn.up = {tensor(at + "up"), kNoTensor};
    layer.ffn.down = {tensor(at + "down"), kNoTensor};
    plan.layers.push_back(layer);
  }
  return plan;
}

struct TemporaryFile {
  std::FILE* file = std::tmpfile();
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::fclose(file); }
  int fd() const { return fileno(file); }
  void put(const std::vector<uint8_t>& bytes) const {
    expect(ftruncate(fd(), 0) == 0, "truncate");
    expect(pwrite(fd(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "write");
  }
};

inline std::vector<uint8_t> tensor_bytes(const TensorSpec& spec, WeightFormat format, uint64_t seed) {
  TestRandom random(seed);
  if (!spec.is_vector) return random_weights(random, ValueKind::plain, format, spec.rows, spec.k);
  const std::vector<float> values = random_floats(random, ValueKind::plain, spec.k);
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Loaded, with pages. Matrices take the formats in turn; vectors are F32.
inline std::unique_ptr<Decoder> tiny_decoder(const KernelSet& kernels, int threads, const TinyShape& shape,
                                             const std::vector<WeightFormat>& formats, int32_t pages,
                                             const Placement& placement = {}) {
  auto decoder = std::make_unique<Decoder>(tiny_plan(shape), kernels, threads, placement);
  const TemporaryFile file;
  const std::vector<TensorSpec> specs = check_plan(tiny_plan(shape));
  size_t matrices = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    const WeightFormat format = specs[i].is_vector ? WeightFormat::f32 : formats[matrices++ % formats.size()];
    const std::vector<uint8_t> bytes = tensor_bytes(specs[i], format, i);
    file.put(bytes);
    decoder->load_tensor(specs[i].name, format, specs[i].rows, specs[i].k, {file.fd(), 0, bytes.size()});
  }
  decoder->finish_loading();
  decoder->allocate_kv(pages);
  return decoder;
}

// A step's arrays, owned.
struct Batch {
  std::vector<int32_t> tokens, starts, positions, page_table, page_starts, sample_rows;
  std::vector<const SamplerConfig*> samplers;
  std::vector<TokenHistory> histories;

  StepInput input() const {
    StepInput step;
    step.tokens = tokens;
    step.starts = starts;
    step.positions = positions;
    step.page_table = page_table;
    step.page_starts = page_starts;
    step.sample_rows = sample_rows;
    step.samplers = samplers;
    step.histories = histories;
    step.return_logits = true;
    return step;
  }
};

}  // namespace tokenmill::test
