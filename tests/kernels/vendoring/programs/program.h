#ifndef BRIGADE_TESTS_KERNELS_VENDORING_PROGRAMS_PROGRAM_H_
#define BRIGADE_TESTS_KERNELS_VENDORING_PROGRAMS_PROGRAM_H_

// What the programs share that call a kernel as somebody who has vendored it does: its loop for the
// CPU or, with ON_CUDA, its launcher. They print their results as sums, the same ones for both.

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#ifdef ON_CUDA
#include <cuda_runtime_api.h>
#endif

namespace brigade::vendored {

// An odd size: several vectors, and a rest.
inline constexpr int64_t kSize = 2003;

#ifdef ON_CUDA
inline void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("%s\n", cudaGetErrorString(error));
  std::exit(1);
}
#endif

// Values where the kernel runs.
template <typename T>
class Array {
 public:
  explicit Array(const std::vector<T>& values) : values_(values) {
#ifdef ON_CUDA
    void* memory;
    Check(cudaMalloc(&memory, Bytes()));
    data_ = static_cast<T*>(memory);
    Check(cudaMemcpy(data_, values_.data(), Bytes(), cudaMemcpyDefault));
#else
    data_ = values_.data();
#endif
  }

  Array(const Array&) = delete;

  T* data() { return data_; }

  // FNV-1a of the bytes.
  void Print(const char* name) {
#ifdef ON_CUDA
    Check(cudaMemcpy(values_.data(), data_, Bytes(), cudaMemcpyDefault));
#endif
    uint64_t sum = 0xcbf29ce484222325;
    for (size_t i = 0; i < Bytes(); ++i) {
      unsigned char byte;
      std::memcpy(&byte, reinterpret_cast<const char*>(values_.data()) + i, 1);
      sum = (sum ^ byte) * 0x100000001b3;
    }
    std::printf("%s %016" PRIx64 "\n", name, sum);
  }

 private:
  size_t Bytes() const { return values_.size() * sizeof(T); }

  std::vector<T> values_;
  T* data_;
};

// Values from -2 to 2, the same everywhere.
template <typename T>
std::vector<T> Values(int64_t size, uint32_t seed) {
  std::vector<T> values;
  for (int64_t i = 0; i < size; ++i) {
    seed = seed * 1664525 + 1013904223;
    values.push_back(T(static_cast<float>(static_cast<int32_t>(seed) >> 8) / (1 << 22)));
  }
  return values;
}

}  // namespace brigade::vendored

#endif  // BRIGADE_TESTS_KERNELS_VENDORING_PROGRAMS_PROGRAM_H_
