// The buffers of a step, kept between steps and grown when a larger batch comes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace tokenmill {

// Uninitialized storage, aligned to a cache line; growing it discards the contents.
template <class T>
class ScratchBuffer {
 public:
  ScratchBuffer() = default;
  ~ScratchBuffer() { release(); }
  ScratchBuffer(ScratchBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), capacity_(std::exchange(other.capacity_, 0)) {}
  ScratchBuffer& operator=(ScratchBuffer&&) = delete;
  ScratchBuffer(const ScratchBuffer&) = delete;
  ScratchBuffer& operator=(const ScratchBuffer&) = delete;

  void reserve(int64_t count) {
    if (count <= capacity_) return;
    release();
    data_ = static_cast<T*>(::operator new(static_cast<size_t>(count) * sizeof(T), kAlignment));
    capacity_ = count;
  }
  T* data() const { return data_; }

 private:
  static constexpr std::align_val_t kAlignment{64};

  void release() {
    if (data_ != nullptr) ::operator delete(data_, kAlignment);
    data_ = nullptr;
    capacity_ = 0;
  }

  T* data_ = nullptr;
  int64_t capacity_ = 0;
};

}  // namespace tokenmill
