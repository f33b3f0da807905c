// The Python module _native (src/tokenmill/_native.pyi). Only the bindings*.cpp know Python: they turn Python values
// into plain ones, check their types, and release the interpreter lock while native code computes.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "bindings_bench.h"
#include "decoder/decoder.h"
#include "decoder/single_kernels.h"
#include "dispatch/borrowed_functions.h"
#include "dispatch/dequantize.h"
#include "dispatch/detect_cpu.h"
#include "dispatch/kernel_registry.h"
#include "dispatch/select_kernels.h"
#include "dispatch/self_test.h"
#include "threads/fp_environment.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tokenmill {
namespace {

template <class T>
using InputVector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using InputMatrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> as_span(const InputVector<T>& array) {
  return {array.data(), array.shape(0)};
}

// Hands storage over to a NumPy array.
template <class T>
nb::object to_numpy(std::unique_ptr<T[]> data, const std::vector<size_t>& shape) {
  T* pointer = data.release();
  const nb::capsule owner(pointer, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(pointer, shape.size(), shape.data(), owner));
}

template <class T, class Get>
nb::object numpy_vector(size_t count, Get get) {
  std::unique_ptr<T[]> data(new T[std::max<size_t>(count, 1)]);
  for (size_t i = 0; i < count; ++i) data[i] = get(i);
  return to_numpy<T>(std::move(data), {count});
}

WeightFormat parse_format(const std::string& name) {
  for (int i = 0; i < kWeightFormatCount; ++i) {
    if (name == kWeightFormats[i].name) return static_cast<WeightFormat>(i);
  }
  throw std::invalid_argument("weight format " + name + " is not supported");
}

const KernelSet& usable_set(const std::string& name) {
  const KernelSelection selection = select_kernel_set(name, detect_cpu_features());
  if (name.empty() || selection.set == nullptr) {
    throw std::invalid_argument(name.empty() ? "the kernel set has no name" : selection.error);
  }
  return *selection.set;
}

// --- plan: dataclasses.asdict(vocabulary.layer_plan.ModelPlan) ---

template <class T>
T item(const nb::handle& mapping, const char* key) {
  try {
    return nb::cast<T>(mapping[key]);
  } catch (const nb::cast_error&) {
    throw std::invalid_argument(std::string("plan: ") + key + " has the wrong type or is out of range");
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_KeyError)) throw;
    throw std::invalid_argument(std::string("plan: ") + key + " is missing");
  }
}

class PlanParser {
 public:
  DecoderPlan parse(const nb::handle& plan) {
    ModelPlan& model = result_.model;
    model.vocab_size = item<int32_t>(plan, "vocab_size");
    model.embedding_dim = item<int32_t>(plan, "embedding_dim");
    result_.context_length = item<int64_t>(plan, "context_length");
    model.norm_epsilon = item<float>(plan, "norm_epsilon");
    model.embedding_scale = item<float>(plan, "embedding_scale");
    model.token_embedding = tensor(plan, "token_embedding");
    model.output_norm = tensor(plan, "output_norm");
    model.output = linear(plan, "output");
    for (const nb::handle layer : item<nb::sequence>(plan, "layers")) result_.layers.push_back(parse_layer(layer));
    model.layer_count = static_cast<int32_t>(result_.layers.size());
    return std::move(result_);
  }

 private:
  TensorIndex tensor(const nb::handle& mapping, const char* key) {
    const auto name = item<std::optional<std::string>>(mapping, key);
    if (!name) return kNoTensor;
    const auto [found, added] = index_.emplace(*name, static_cast<TensorIndex>(result_.tensor_names.size()));
    if (added) result_.tensor_names.push_back(*name);
    return found->second;
  }

  LinearPlan linear(const nb::handle& mapping, const char* key) {
    const auto value = item<nb::object>(mapping, key);
    return {tensor(value, "weight"), tensor(value, "bias")};
  }

  // Index of the string under `key` among `names`.
  static int choice(const nb::handle& mapping, const char* key, const std::vector<std::string>& names) {
    const auto value = item<std::string>(mapping, key);
    const auto found = std::find(names.begin(), names.end(), value);
    if (found == names.end())
      throw std::invalid_argument(std::string("plan: ") + key + " \"" + value + "\" is unknown");
    return static_cast<int>(found - names.begin());
  }

  RopePlan parse_rope(const nb::handle& rope) {
    RopePlan out;
    out.style = static_cast<RopeStyle>(choice(rope, "style", {"none", "interleaved", "half"}));
    out.rotary_dim = item<int32_t>(rope, "rotary_dim");
    out.base = item<double>(rope, "base");
    out.position_scale = item<double>(rope, "position_scale");
    if (out.style != RopeStyle::none) out.freq_factors = tensor(rope, "freq_factors");
    return out;
  }

  LayerPlan parse_layer(const nb::handle& layer) {
    LayerPlan out;
    out.attention_norm = tensor(layer, "attention_norm");
    const auto attention = item<nb::object>(layer, "attention");
    out.attention.head_count = item<int32_t>(attention, "head_count");
    out.attention.kv_head_count = item<int32_t>(attention, "kv_head_count");
    out.attention.head_dim = item<int32_t>(attention, "head_dim");
    out.attention.score_scale = item<float>(attention, "score_scale");
    out.attention.window = item<int32_t>(attention, "window");
    out.attention.query = linear(attention, "query");
    out.attention.key = linear(attention, "key");
    out.attention.value = linear(attention, "value");
    out.attention.output = linear(attention, "output");
    out.attention.query_norm = tensor(attention, "query_norm");
    out.attention.key_norm = tensor(attention, "key_norm");
    out.attention.rope = parse_rope(item<nb::object>(attention, "rope"));
    out.post_attention_norm = tensor(layer, "post_attention_norm");
    out.ffn_norm = tensor(layer, "ffn_norm");
    const auto ffn = item<nb::object>(layer, "ffn");
    out.ffn.hidden = item<int32_t>(ffn, "hidden");
    out.ffn.activation = static_cast<Activation>(choice(ffn, "activation", {"silu", "gelu_tanh"}));
    out.ffn.gate = linear(ffn, "gate");
    out.ffn.up = linear(ffn, "up");
    out.ffn.down = linear(ffn, "down");
    out.ffn.expert_count = item<int32_t>(ffn, "expert_count");
    out.ffn.experts_used = item<int32_t>(ffn, "experts_used");
    out.post_ffn_norm = tensor(layer, "post_ffn_norm");
    return out;
  }

  DecoderPlan result_;
  std::map<std::string, TensorIndex> index_;
};

// --- sampling ---

SamplerConfig make_sampler(float temperature, int32_t top_k, float top_p, float min_p, float repetition_penalty,
                           float presence_penalty, float frequency_penalty,
                           const std::vector<std::pair<int32_t, float>>& logit_bias, uint64_t seed, int32_t logprobs) {
  SamplerConfig config;
  config.temperature = temperature;
  config.top_k = top_k;
  config.top_p = top_p;
  config.min_p = min_p;
  config.repetition_penalty = repetition_penalty;
  config.presence_penalty = presence_penalty;
  config.frequency_penalty = frequency_penalty;
  for (const auto& [token, bias] : logit_bias) config.logit_bias.push_back({token, bias});
  config.seed = seed;
  config.logprobs = logprobs;
  check_sampler(config);
  return config;
}

// --- model ---

struct PyStepResult {
  nb::object token_ids, logprobs, top_ids, top_logprobs, nonfinite, logits, phase_seconds;
};

PyStepResult to_python(StepResult& result, size_t samples, int32_t vocab) {
  PyStepResult out;
  const std::vector<SampledToken>& sampled = result.sampled;
  out.token_ids = numpy_vector<int32_t>(sampled.size(), [&](size_t i) { return sampled[i].token; });
  out.logprobs = numpy_vector<float>(sampled.size(), [&](size_t i) { return sampled[i].logprob; });
  nb::list ids;
  nb::list logprobs;
  for (const SampledToken& token : sampled) {
    ids.append(numpy_vector<int32_t>(token.top.size(), [&](size_t i) { return token.top[i].first; }));
    logprobs.append(numpy_vector<float>(token.top.size(), [&](size_t i) { return token.top[i].second; }));
  }
  out.top_ids = std::move(ids);
  out.top_logprobs = std::move(logprobs);
  out.nonfinite = numpy_vector<bool>(result.nonfinite.size(), [&](size_t i) { return result.nonfinite[i] != 0; });
  out.logits =
      result.logits ? to_numpy<float>(std::move(result.logits), {samples, static_cast<size_t>(vocab)}) : nb::none();
  nb::dict seconds;
  for (int i = 0; i < kPhaseCount; ++i) seconds[kPhaseNames[i]] = result.phase_seconds[i];
  out.phase_seconds = std::move(seconds);
  return out;
}

using Histories = std::vector<std::optional<std::pair<InputVector<int32_t>, int64_t>>>;

class PyModel {
 private:
  // Runs without the interpreter lock; a second thread that calls at the same time gets an error instead of a race.
  template <class Work>
  auto exclusively(Work work) {
    if (busy_.exchange(true, std::memory_order_acquire)) {
      throw std::runtime_error("the model is in use by another thread");
    }
    struct Release {
      std::atomic<bool>& flag;
      ~Release() { flag.store(false, std::memory_order_release); }
    } const unlock{busy_};
    const nb::gil_scoped_release release;
    return work();
  }

 public:
  PyModel(const nb::handle& plan, const std::string& kernel_set, int threads,
          const std::optional<std::vector<CpuSet>>& cpus, const std::vector<int>& thread_copies,
          const std::vector<NodeSet>& weight_nodes, const NodeSet& kv_nodes, uint64_t expected_weight_bytes) {
    Placement placement{cpus.value_or(std::vector<CpuSet>{}), thread_copies, weight_nodes, kv_nodes,
                        expected_weight_bytes};
    DecoderPlan parsed = PlanParser().parse(plan);
    const KernelSet& kernels = usable_set(kernel_set);
    const nb::gil_scoped_release release;
    decoder_ = std::make_unique<Decoder>(std::move(parsed), kernels, threads, std::move(placement));
  }

  uint64_t load_tensor(const std::string& name, const std::string& format, int64_t rows, int64_t k, int fd,
                       uint64_t offset, uint64_t nbytes) {
    const WeightFormat parsed = parse_format(format);
    return exclusively([&] { return decoder_->load_tensor(name, parsed, rows, k, {fd, offset, nbytes}); });
  }
  void finish_loading() {
    exclusively([&] { decoder_->finish_loading(); });
  }
  uint64_t allocate_kv(int32_t pages) {
    return exclusively([&] { return decoder_->allocate_kv(pages); });
  }
  void zero_pages(const InputVector<int32_t>& pages) {
    exclusively([&] { decoder_->zero_pages(as_span(pages)); });
  }
  uint64_t kv_bytes_per_page() const { return decoder_->kv_bytes_per_page(); }
  uint64_t weight_bytes() const { return decoder_->weight_bytes(); }
  MemoryReport weight_memory() {
    return exclusively([&] { return decoder_->weight_report(); });
  }
  MemoryReport kv_memory() {
    return exclusively([&] { return decoder_->kv_report(); });
  }
  uint64_t lock_memory() {
    return exclusively([&] { return decoder_->lock_memory(); });
  }

  PyStepResult step(const InputVector<int32_t>& tokens, const InputVector<int32_t>& starts,
                    const InputVector<int32_t>& positions, const InputVector<int32_t>& page_table,
                    const InputVector<int32_t>& page_starts, const InputVector<int32_t>& sample_rows,
                    const std::optional<std::vector<const SamplerConfig*>>& samplers, const Histories& histories,
                    bool return_logits) {
    StepInput input;
    input.tokens = as_span(tokens);
    input.starts = as_span(starts);
    input.positions = as_span(positions);
    input.page_table = as_span(page_table);
    input.page_starts = as_span(page_starts);
    input.sample_rows = as_span(sample_rows);
    if (samplers && samplers->size() != sample_rows.shape(0)) {
      throw std::invalid_argument("step: samplers must have one entry for each of sample_rows");
    }
    if (samplers && std::find(samplers->begin(), samplers->end(), nullptr) != samplers->end()) {
      throw std::invalid_argument("step: samplers must not hold None");
    }
    if (samplers) input.samplers = *samplers;
    std::vector<TokenHistory> given;
    for (const auto& history : histories) {
      given.push_back(
          history ? TokenHistory{history->first.data(), static_cast<int64_t>(history->first.shape(0)), history->second}
                  : TokenHistory{});
    }
    input.histories = given;
    input.return_logits = return_logits;
    StepResult result = exclusively([&] { return decoder_->step(input); });
    return to_python(result, sample_rows.shape(0), decoder_->vocab_size());
  }

 private:
  std::unique_ptr<Decoder> decoder_;
  std::atomic<bool> busy_{false};
};

// --- module functions ---

nb::list feature_list(const std::vector<std::string>& names) { return nb::cast<nb::list>(nb::cast(names)); }

nb::list list_kernel_sets() {
  const CpuFeatureMask available = detect_cpu_features();
  nb::list sets;
  for (const KernelSet* set : kernel_sets()) {
    const std::vector<std::string> missing = missing_features(*set, available);
    nb::dict entry;
    entry["name"] = set->name;
    entry["rank"] = set->rank;
    entry["required"] = feature_list(missing_features(*set, 0));
    entry["missing"] = feature_list(missing);
    entry["usable"] = missing.empty();
    entry["panel_rows"] = set->panel_rows;
    entry["borrowed"] = feature_list(borrowed_functions(*set));
    sets.append(entry);
  }
  return sets;
}

std::vector<std::string> feature_names(CpuFeatureMask mask) {
  std::vector<std::string> names;
  for (int i = 0; i < kCpuFeatureCount; ++i) {
    if ((mask & feature_bit(static_cast<CpuFeature>(i))) != 0) names.emplace_back(kCpuFeatureNames[i]);
  }
  return names;
}

nb::dict cpu_report() {
  const CpuReport report = report_cpu();
  nb::dict entry;
  entry["known"] = feature_names(report.known);
  entry["reported"] = feature_names(report.reported);
  entry["usable"] = feature_names(report.usable);
  entry["xcr0"] = report.xcr0;
  return entry;
}

std::string choose_kernel_set(const std::optional<std::string>& forced) {
  const KernelSelection selection = select_kernel_set(forced.value_or(""), detect_cpu_features());
  if (selection.set == nullptr) throw std::invalid_argument(selection.error);
  return selection.set->name;
}

nb::object dequantize_rows(const std::string& format_name, const nb::bytes& data, int64_t k) {
  const WeightFormat format = parse_format(format_name);
  const uint64_t bytes = k > 0 ? row_bytes(format, static_cast<uint64_t>(k)) : 0;
  if (bytes == 0 || data.size() % bytes != 0) {
    throw std::invalid_argument(std::to_string(data.size()) + " bytes are no whole rows of " + std::to_string(k) + " " +
                                format_name + " weights");
  }
  const size_t rows = data.size() / bytes;
  const size_t columns = static_cast<size_t>(k);
  std::unique_ptr<float[]> out(new float[std::max<size_t>(rows * columns, 1)]);
  const auto* rows_data = static_cast<const uint8_t*>(data.data());
  {
    const nb::gil_scoped_release release;
    for (size_t row = 0; row < rows; ++row) {
      dequantize_row(format, rows_data + row * bytes, k, out.get() + row * columns);
    }
  }
  return to_numpy<float>(std::move(out), {rows, columns});
}

nb::object multiply(const std::string& kernel_set, const std::string& format_name, const nb::bytes& weights,
                    int64_t rows, const InputMatrix<float>& x, int threads) {
  const KernelSet& kernels = usable_set(kernel_set);
  const WeightFormat format = parse_format(format_name);
  const size_t tokens = x.shape(0);
  const size_t k = x.shape(1);
  const std::span<const uint8_t> file{static_cast<const uint8_t*>(weights.data()), weights.size()};
  check_matrix_bytes(format, file.size(), rows, static_cast<int64_t>(k));
  std::unique_ptr<float[]> y(new float[std::max<size_t>(tokens * static_cast<size_t>(rows), 1)]);
  {
    const nb::gil_scoped_release release;
    multiply_once(kernels, format, file, rows, {x.data(), static_cast<int64_t>(tokens), static_cast<int64_t>(k)},
                  threads, y.get());
  }
  return to_numpy<float>(std::move(y), {tokens, static_cast<size_t>(rows)});
}

nb::tuple quantize_activations(const std::string& kernel_set, const InputMatrix<float>& x) {
  const KernelSet& kernels = usable_set(kernel_set);
  const size_t rows = x.shape(0);
  const size_t k = x.shape(1);
  if (k == 0 || k % kGroupSize != 0) throw std::invalid_argument("the columns of x must be a multiple of 32");
  const size_t groups = k / kGroupSize;
  std::unique_ptr<int8_t[]> q(new int8_t[std::max<size_t>(rows * k, 1)]);
  std::unique_ptr<float[]> scale(new float[std::max<size_t>(rows * groups, 1)]);
  std::unique_ptr<int16_t[]> half_sums(new int16_t[std::max<size_t>(rows * groups * 2, 1)]);
  std::vector<uint8_t> nonfinite(rows);
  {
    const nb::gil_scoped_release release;
    const ScopedFpEnvironment environment;
    kernels.quantize_rows(x.data(), static_cast<int64_t>(k), static_cast<int64_t>(rows), static_cast<int64_t>(k),
                          {q.get(), scale.get(), half_sums.get()}, nonfinite.data());
  }
  return nb::make_tuple(to_numpy<int8_t>(std::move(q), {rows, k}), to_numpy<float>(std::move(scale), {rows, groups}),
                        to_numpy<int16_t>(std::move(half_sums), {rows, groups, 2}));
}

std::vector<std::string> run_self_test(const std::string& kernel_set) {
  const KernelSet& kernels = usable_set(kernel_set);
  const nb::gil_scoped_release release;
  const ScopedFpEnvironment environment;
  return self_test(kernels);
}

}  // namespace
}  // namespace tokenmill

NB_MODULE(_native, m) {
  using namespace tokenmill;
  nb::set_leak_warnings(false);
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const std::system_error& error) {
      const nb::object arguments = nb::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(PyExc_OSError, arguments.ptr());
    }
  });

  m.def("cpu_features", [] { return feature_names(detect_cpu_features()); });
  m.def("cpu_report", &cpu_report);
  m.def("kernel_sets", &list_kernel_sets);
  m.def("select_kernel_set", &choose_kernel_set, "forced"_a.none());
  m.def("self_test", &run_self_test, "kernel_set"_a);
  m.def("fp_environment_is_default", &fp_environment_is_default);
  m.def("quantize_activations", &quantize_activations, "kernel_set"_a, "x"_a.noconvert());
  m.def("dequantize", &dequantize_rows, "format_name"_a, "data"_a, "k"_a);
  m.def("matmul", &multiply, "kernel_set"_a, "format_name"_a, "weights"_a, "rows"_a, "x"_a.noconvert(), "threads"_a);
  bind_benchmarks(m);

  nb::class_<SamplerConfig>(m, "SamplerConfig")
      .def(nb::new_(&make_sampler), nb::kw_only(), "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a,
           "repetition_penalty"_a, "presence_penalty"_a, "frequency_penalty"_a, "logit_bias"_a, "seed"_a, "logprobs"_a);

  nb::class_<PyStepResult>(m, "StepResult")
      .def_ro("token_ids", &PyStepResult::token_ids)
      .def_ro("logprobs", &PyStepResult::logprobs)
      .def_ro("top_ids", &PyStepResult::top_ids)
      .def_ro("top_logprobs", &PyStepResult::top_logprobs)
      .def_ro("nonfinite", &PyStepResult::nonfinite)
      .def_ro("logits", &PyStepResult::logits)
      .def_ro("phase_seconds", &PyStepResult::phase_seconds);

  nb::class_<MemoryReport>(m, "MemoryReport")
      .def_ro("pool_bytes", &MemoryReport::pool_bytes)
      .def_ro("transparent_bytes", &MemoryReport::transparent_bytes)
      .def_ro("pool_refusal", &MemoryReport::pool_refusal)
      .def_ro("policy_refusal", &MemoryReport::policy_refusal)
      .def_ro("node_bytes", &MemoryReport::node_bytes);

  nb::class_<PyModel>(m, "Model")
      .def(nb::init<const nb::handle&, const std::string&, int, const std::optional<std::vector<CpuSet>>&,
                    const std::vector<int>&, const std::vector<NodeSet>&, const NodeSet&, uint64_t>(),
           "plan"_a, nb::kw_only(), "kernel_set"_a, "threads"_a, "cpus"_a.none(),
           "thread_copies"_a = std::vector<int>{}, "weight_nodes"_a = std::vector<NodeSet>{NodeSet{}},
           "kv_nodes"_a = NodeSet{}, "expected_weight_bytes"_a = 0)
      .def("load_tensor", &PyModel::load_tensor, "name"_a, "format_name"_a, "rows"_a, "k"_a, "fd"_a, "offset"_a,
           "nbytes"_a)
      .def("finish_loading", &PyModel::finish_loading)
      .def("allocate_kv", &PyModel::allocate_kv, "pages"_a)
      .def("zero_pages", &PyModel::zero_pages, "pages"_a.noconvert())
      .def("step", &PyModel::step, "tokens"_a.noconvert(), "starts"_a.noconvert(), "positions"_a.noconvert(),
           "page_table"_a.noconvert(), "page_starts"_a.noconvert(), "sample_rows"_a.noconvert(), "samplers"_a.none(),
           "histories"_a, nb::kw_only(), "return_logits"_a = false)
      .def_prop_ro("kv_bytes_per_page", &PyModel::kv_bytes_per_page)
      .def_prop_ro("weight_bytes", &PyModel::weight_bytes)
      .def("weight_memory", &PyModel::weight_memory)
      .def("kv_memory", &PyModel::kv_memory)
      .def("lock_memory", &PyModel::lock_memory);
}
