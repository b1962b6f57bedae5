#ifndef BRIGADE_TESTS_EMULATOR_DEVICE_ARRAY_H_
#define BRIGADE_TESTS_EMULATOR_DEVICE_ARRAY_H_

#include <cuda_runtime_api.h>

#include <vector>

#include "gtest/gtest.h"

namespace brigade::emulator {

// An array in the memory of the current device.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, bytes()), cudaSuccess);
    Write(values);
  }
  ~DeviceArray() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return static_cast<T*>(data_); }

  void Write(const std::vector<T>& values) const {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
    // From pageable memory it may return earlier, and other streams need not wait for it.
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  }

  // Waits for what is enqueued on the stream.
  std::vector<T> Read(cudaStream_t stream = nullptr) const {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    std::vector<T> values(size_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  size_t bytes() const { return size_ * sizeof(T); }

  const size_t size_;
  void* data_ = nullptr;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_TESTS_EMULATOR_DEVICE_ARRAY_H_
