// The largest absolute value of an array of the GPU. It needs amax_cuda.cu with what it includes,
// and the CUDA runtime.
//
// Prints: amax 7.0, all finite

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/amax/amax_cuda.h"

namespace {

namespace bk = brigade::kernels;

// Of `size` elements; all pointers are device memory.
cudaError_t Largest(const float* array, int64_t size, bk::AmaxWorkspace* workspace,
                    bk::AmaxResult* result, cudaStream_t stream) {
  return bk::LaunchAmax<float>(array, size, /*scale=*/nullptr, workspace, result, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    float array[4];
    bk::AmaxResult result;
    bk::AmaxWorkspace workspace;
  };
  const float array[4] = {1, -7, 3, 4};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device->array, array, sizeof(array), cudaMemcpyHostToDevice));
  Check(Largest(device->array, 4, &device->workspace, &device->result, nullptr));
  bk::AmaxResult result = {};
  Check(cudaMemcpy(&result, &device->result, sizeof(result), cudaMemcpyDeviceToHost));
  std::printf("amax %.1f, %s\n", result.value,
              result.non_finite != 0 ? "not finite" : "all finite");
  Check(cudaFree(device));
}
