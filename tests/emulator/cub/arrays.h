#ifndef BRIGADE_TESTS_EMULATOR_CUB_ARRAYS_H_
#define BRIGADE_TESTS_EMULATOR_CUB_ARRAYS_H_

// What the tests of CUB and Thrust share: arrays of the device, and random values of the host. What
// the emulator finds in a kernel makes the process fail at its end.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"

namespace brigade::emulator {

template <typename T>
class Array {
 public:
  explicit Array(size_t size) : size_(size) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<size_t>(size, 1) * sizeof(T)), cudaSuccess);
  }
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyDefault), cudaSuccess);
  }
  ~Array() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() const { return data_; }
  T* end() const { return data_ + size_; }
  // The first `count` values, after all work of the device.
  std::vector<T> Values(size_t count) const {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<T> values(count);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count * sizeof(T), cudaMemcpyDefault), cudaSuccess);
    return values;
  }
  std::vector<T> Values() const { return Values(size_); }

 private:
  size_t size_ = 0;
  T* data_ = nullptr;
};

// Calls an algorithm of CUB once to learn how many bytes it needs, and again with as many.
template <typename Algorithm>
void RunCub(const Algorithm& algorithm) {
  size_t bytes = 0;
  ASSERT_EQ(algorithm(nullptr, bytes), cudaSuccess);
  const Array<uint8_t> memory(bytes);
  ASSERT_EQ(algorithm(memory.data(), bytes), cudaSuccess);
}

// Around those of a warp, of a block and of CUB's tiles, and others at random.
inline std::vector<size_t> Sizes() {
  static std::mt19937 random(5);
  return {0, 1, 31, 33, 256, 1919, 1921, 2000 + random() % 4000, 20000 + random() % 40000};
}

// Integers from all of the type or, with `range`, from 0 to range - 1; of floating-point types
// integers whose sums are exact.
template <typename T>
std::vector<T> RandomValues(size_t size, uint64_t range = 0) {
  static std::mt19937_64 random(7);
  std::vector<T> values(size);
  for (T& value : values) {
    const uint64_t bits = range == 0 ? random() : random() % range;
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(bits);
    } else {
      value = static_cast<T>(static_cast<float>(static_cast<int64_t>(bits % 256) - 128));
    }
  }
  return values;
}

}  // namespace brigade::emulator

#endif  // BRIGADE_TESTS_EMULATOR_CUB_ARRAYS_H_
