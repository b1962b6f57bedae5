#ifndef BRIGADE_TESTS_INTEGRATION_VENDORING_PROGRAMS_PROGRAM_H_
#define BRIGADE_TESTS_INTEGRATION_VENDORING_PROGRAMS_PROGRAM_H_

// What the programs share that call a launcher as somebody who has vendored it does. They end with
// 0 if the results are right, and say what is not.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

namespace brigade::vendored {

inline void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("%s\n", cudaGetErrorString(error));
  std::exit(1);
}

inline void Expect(bool condition, const char* what) {
  if (condition) return;
  std::printf("not so: %s\n", what);
  std::exit(1);
}

// A value in device memory, which ends with the program.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const T& value) {
    Check(cudaMalloc(reinterpret_cast<void**>(&data_), sizeof(T)));
    Check(cudaMemcpy(data_, &value, sizeof(T), cudaMemcpyHostToDevice));
  }

  // For addresses.
  T* operator->() const { return data_; }

  T Read() const {
    T value;
    Check(cudaMemcpy(&value, data_, sizeof(T), cudaMemcpyDeviceToHost));
    return value;
  }

 private:
  T* data_ = nullptr;
};

}  // namespace brigade::vendored

#endif  // BRIGADE_TESTS_INTEGRATION_VENDORING_PROGRAMS_PROGRAM_H_
