#ifndef BRIGADE_TESTS_KERNELS_SPARSE_ARRAY_H_
#define BRIGADE_TESTS_KERNELS_SPARSE_ARRAY_H_

#include <sys/mman.h>

#include <cstdint>
#include <type_traits>

#include "gtest/gtest.h"

namespace brigade::kernels {

// `size` elements, 0 at first, more than the machine may have memory for: only pages that are
// touched cost any. They begin `offset` elements past a page's begin, and an element behind the
// last one exists as well.
template <typename T>
class SparseArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit SparseArray(int64_t size, int64_t offset = 0)
      : bytes_((size + offset + 1) * sizeof(T)),
        pages_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
        data_(static_cast<T*>(pages_) + offset) {
    EXPECT_NE(pages_, MAP_FAILED) << "no address space for " << bytes_ << " bytes";
  }
  ~SparseArray() { munmap(pages_, bytes_); }
  SparseArray(const SparseArray&) = delete;
  SparseArray& operator=(const SparseArray&) = delete;

  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  const size_t bytes_;
  void* const pages_;
  T* const data_;
};

}  // namespace brigade::kernels

#endif  // BRIGADE_TESTS_KERNELS_SPARSE_ARRAY_H_
