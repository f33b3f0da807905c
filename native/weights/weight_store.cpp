#include "weights/weight_store.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "dispatch/dequantize.h"
#include "threads/work_phases.h"

namespace tokenmill {
namespace {

// File bytes that one thread holds at a time. Files are read, not mapped: a file that is cut short while it is read
// gives an error instead of a signal, and its pages do not count as this process's memory.
constexpr uint64_t kStagingBytes = uint64_t{1} << 20;

// Returns 0, or the error number; EIO when the file ends early.
int read_exactly(int fd, uint64_t offset, uint8_t* out, uint64_t bytes) {
  while (bytes > 0) {
    const ssize_t got = pread(fd, out, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return EIO;
    out += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return 0;
}

// The first thing that went wrong, by row, over all threads.
struct LoadError {
  std::mutex mutex;
  std::atomic<bool> set{false};  // only stops threads early; the fields are read after the threads have met
  int64_t row = -1;
  int64_t block = -1;
  int error_number = 0;
  bool out_of_memory = false;

  void report(int64_t at_row, int64_t at_block, int number) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!set.load(std::memory_order_relaxed) || at_row < row) {
      row = at_row;
      block = at_block;
      error_number = number;
    }
    set.store(true, std::memory_order_relaxed);
  }
  void report_out_of_memory() {
    const std::lock_guard<std::mutex> lock(mutex);
    out_of_memory = true;
    set.store(true, std::memory_order_relaxed);
  }
};

[[noreturn]] void throw_bad_value(const std::string& name, WeightFormat format, int64_t row, int64_t block) {
  const bool integer = format_info(format).integer;
  throw std::runtime_error("tensor " + name + ": row " + std::to_string(row) + (integer ? ", block " : ", element ") +
                           std::to_string(block) + (integer ? ": the scale" : ": the value") + " is NaN or infinite");
}

[[noreturn]] void throw_read_error(const std::string& name, int error_number) {
  throw std::system_error(
      error_number, std::generic_category(),
      "tensor " + name + (error_number == EIO ? ": reading failed or the file ends early" : ": reading failed"));
}

std::string shape_text(int64_t rows, int64_t k) {
  return std::string(1, '[').append(std::to_string(rows)).append(", ").append(std::to_string(k)).append("]");
}

}  // namespace

WeightStore::WeightStore(const KernelSet& kernels, std::vector<TensorSpec> specs, const std::vector<NodeSet>& copies,
                         uint64_t expected_bytes)
    : kernels_(kernels) {
  for (const NodeSet& nodes : copies) arenas_.emplace_back(nodes, expected_bytes);
  for (TensorSpec& spec : specs) {
    index_.emplace(spec.name, tensors_.size());
    tensors_.push_back({std::move(spec), false, std::vector<PackedMatrix>(copies.size()), nullptr});
  }
}

uint64_t WeightStore::load(ThreadPool& pool, const std::string& name, WeightFormat format, int64_t rows, int64_t k,
                           const TensorSource& source) {
  const auto found = index_.find(name);
  if (found == index_.end()) throw std::invalid_argument("tensor " + name + " is not part of the plan");
  Tensor& tensor = tensors_[found->second];
  const TensorSpec& spec = tensor.spec;
  const WeightFormatInfo& info = format_info(format);
  if (tensor.loaded) throw std::invalid_argument("tensor " + name + " is loaded already");
  if (rows != spec.rows || k != spec.k) {
    throw std::invalid_argument("tensor " + name + " is " + shape_text(rows, k) + " where the plan needs " +
                                shape_text(spec.rows, spec.k));
  }
  if (spec.is_vector && info.integer) {
    throw std::invalid_argument("tensor " + name + " must be F32, F16 or BF16, not " + info.name);
  }
  const uint64_t file_row = row_bytes(format, static_cast<uint64_t>(k));
  if (file_row == 0) {
    throw std::invalid_argument("tensor " + name + ": " + std::to_string(k) + " columns are no multiple of " +
                                info.name + "'s block of " + std::to_string(info.block_elements));
  }
  if (source.bytes != file_row * static_cast<uint64_t>(rows)) {
    throw std::invalid_argument("tensor " + name + ": " + std::to_string(source.bytes) + " bytes given where " +
                                info.name + " " + shape_text(rows, k) + " takes " +
                                std::to_string(file_row * static_cast<uint64_t>(rows)));
  }
  const uint64_t packed =
      spec.is_vector ? load_vector(tensor, format, source) : load_matrix(pool, tensor, format, source);
  tensor.loaded = true;
  bytes_ += spec.is_vector ? packed : packed * arenas_.size();
  return packed;
}

uint64_t WeightStore::load_vector(Tensor& tensor, WeightFormat format, const TensorSource& source) {
  const int64_t n = tensor.spec.k;
  std::vector<uint8_t> file(source.bytes);
  const int error = read_exactly(source.fd, source.offset, file.data(), source.bytes);
  if (error != 0) throw_read_error(tensor.spec.name, error);
  const int64_t bad = find_nonfinite_block(format, file.data(), n);
  if (bad >= 0) throw_bad_value(tensor.spec.name, format, 0, bad);
  const uint64_t bytes = static_cast<uint64_t>(n) * sizeof(float);
  tensor.vector = reinterpret_cast<float*>(arenas_[0].allocate(bytes));
  dequantize_row(format, file.data(), n, tensor.vector);
  return bytes;
}

uint64_t WeightStore::load_matrix(ThreadPool& pool, Tensor& tensor, WeightFormat format, const TensorSource& source) {
  const TensorSpec& spec = tensor.spec;
  const uint64_t file_row = row_bytes(format, static_cast<uint64_t>(spec.k));
  const int64_t panel_rows = kernels_.panel_rows;
  const int64_t panels = (spec.rows + panel_rows - 1) / panel_rows;
  const uint64_t panel_bytes = kernels_.panel_bytes(format, spec.k);
  const uint64_t file_panel = file_row * static_cast<uint64_t>(panel_rows);
  const int64_t panels_at_once =
      static_cast<int64_t>(std::max(kStagingBytes, file_panel) / std::max<uint64_t>(1, file_panel));
  std::vector<uint8_t*> packed;
  packed.reserve(arenas_.size());
  for (HugeArena& arena : arenas_) packed.push_back(arena.allocate(panel_bytes * static_cast<uint64_t>(panels)));
  LoadError failure;

  const auto load_panels = [&](std::vector<uint8_t>& staging, int64_t first_panel) {
    const int64_t first_row = first_panel * panel_rows;
    const int64_t rows = std::min(panels_at_once * panel_rows, spec.rows - first_row);
    const int error = read_exactly(source.fd, source.offset + static_cast<uint64_t>(first_row) * file_row,
                                   staging.data(), static_cast<uint64_t>(rows) * file_row);
    if (error != 0) {
      failure.report(first_row, -1, error);
      return;
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t bad = find_nonfinite_block(format, staging.data() + static_cast<uint64_t>(row) * file_row, spec.k);
      if (bad >= 0) {
        failure.report(first_row + row, bad, 0);
        return;
      }
    }
    for (int64_t row = 0; row < rows; row += panel_rows) {
      const uint64_t at = static_cast<uint64_t>((first_row + row) / panel_rows) * panel_bytes;
      kernels_.pack_panel(format, staging.data() + static_cast<uint64_t>(row) * file_row,
                          std::min(panel_rows, rows - row), spec.k, packed[0] + at);
      for (size_t copy = 1; copy < packed.size(); ++copy) std::memcpy(packed[copy] + at, packed[0] + at, panel_bytes);
    }
  };

  WorkPhases work;
  work.reset(1);
  // Pieces are claimed in ascending order and finished once claimed, so the lowest bad row is always seen.
  pool.run([&](int) {
    try {
      std::vector<uint8_t> staging(file_panel * static_cast<uint64_t>(panels_at_once));
      work.run(0, panels, panels_at_once, [&](int64_t first_panel, int64_t) {
        if (!failure.set.load(std::memory_order_relaxed)) load_panels(staging, first_panel);
      });
    } catch (const std::bad_alloc&) {
      failure.report_out_of_memory();
    }
  });
  if (failure.out_of_memory) throw std::bad_alloc();
  if (failure.error_number != 0) throw_read_error(spec.name, failure.error_number);
  if (failure.row >= 0) throw_bad_value(spec.name, format, failure.row, failure.block);

  for (size_t copy = 0; copy < packed.size(); ++copy) {
    tensor.matrix[copy] = {format, spec.rows, spec.k, packed[copy], panel_bytes};
  }
  return panel_bytes * static_cast<uint64_t>(panels);
}

MemoryReport WeightStore::report() const {
  MemoryReport total;
  for (const HugeArena& arena : arenas_) total.add(arena.report());
  return total;
}

uint64_t WeightStore::lock() const {
  uint64_t total = 0;
  for (const HugeArena& arena : arenas_) total += arena.lock();
  return total;
}

void WeightStore::check_complete() const {
  for (const Tensor& tensor : tensors_) {
    if (!tensor.loaded) throw std::invalid_argument("tensor " + tensor.spec.name + " is missing");
  }
}

}  // namespace tokenmill
