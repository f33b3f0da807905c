// The tensors of a model, packed by the kernel set that will read them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "contract/kernel_set.h"
#include "contract/layer_plan.h"
#include "threads/thread_pool.h"
#include "weights/huge_memory.h"
#include "weights/memory_policy.h"

namespace tokenmill {

// What the plan expects of a tensor. A vector (norm, bias, frequency factors) has one row and is kept as binary32.
struct TensorSpec {
  std::string name;
  bool is_vector = false;
  int64_t rows = 0;
  int64_t k = 0;
};

// Where a tensor's bytes are.
struct TensorSource {
  int fd = -1;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

class WeightStore {
 public:
  // `copies`: the nodes of each copy's memory, at least one copy; matrices are kept once per copy, vectors (which stay
  // in a core's own cache) once. `expected_bytes`: of one copy, 0 where unknown.
  WeightStore(const KernelSet& kernels, std::vector<TensorSpec> specs, const std::vector<NodeSet>& copies,
              uint64_t expected_bytes);

  // Reads, checks and packs one tensor with the pool's threads; returns the packed bytes of one copy. Throws
  // std::invalid_argument (name, format or size is not what the plan expects, or it is loaded already),
  // std::system_error (reading), std::runtime_error (a scale that is NaN or infinite), std::bad_alloc.
  uint64_t load(ThreadPool& pool, const std::string& name, WeightFormat format, int64_t rows, int64_t k,
                const TensorSource& source);

  // Throws std::invalid_argument naming the first tensor that is not loaded.
  void check_complete() const;

  // The first of the tensor's copies, which stand side by side in the order of `copies`: they differ in `data` only.
  const PackedMatrix* matrix(TensorIndex index) const { return tensors_[static_cast<size_t>(index)].matrix.data(); }
  const float* vector(TensorIndex index) const {
    return index == kNoTensor ? nullptr : tensors_[static_cast<size_t>(index)].vector;
  }
  uint64_t bytes() const { return bytes_; }  // of all copies
  MemoryReport report() const;
  // Keeps the weights in memory; returns their bytes. Throws std::system_error when the kernel refuses.
  uint64_t lock() const;

 private:
  struct Tensor {
    TensorSpec spec;
    bool loaded = false;
    std::vector<PackedMatrix> matrix;  // by copy
    float* vector = nullptr;
  };

  uint64_t load_vector(Tensor& tensor, WeightFormat format, const TensorSource& source);
  uint64_t load_matrix(ThreadPool& pool, Tensor& tensor, WeightFormat format, const TensorSource& source);

  const KernelSet& kernels_;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::vector<HugeArena> arenas_;  // by copy
  uint64_t bytes_ = 0;
};

}  // namespace tokenmill
