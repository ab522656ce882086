// An array of which only the touched pages take memory: room is reserved once, so that elements
// never move and threads may read while others append.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace auxtrail {

// Elements begin as zero bytes, and are never destroyed.
template <typename T>
class ReservedArray {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  ReservedArray() = default;
  // Reserves room for `count` elements, or for less if there is not so much address space; see
  // size(). 0 in the worst case.
  explicit ReservedArray(size_t count) {
    for (size_ = count; size_ != 0; size_ /= 2) {
      void* memory = ::mmap(nullptr, size_ * sizeof(T), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) continue;
      data_ = static_cast<T*>(memory);
      return;
    }
  }
  // All of it, or std::bad_alloc.
  static ReservedArray exactly(size_t count) {
    ReservedArray array(count);
    if (array.size() != count) throw std::bad_alloc();
    return array;
  }
  ReservedArray(ReservedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  ReservedArray& operator=(ReservedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~ReservedArray() {
    if (data_ != nullptr) ::munmap(data_, size_ * sizeof(T));
  }

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] T* data() const { return data_; }
  T& operator[](size_t index) const { return data_[index]; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace auxtrail
