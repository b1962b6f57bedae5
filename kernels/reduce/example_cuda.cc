// The sum of two arrays of the GPU. It needs reduce_cuda.cu with what it includes, and the CUDA
// runtime.
//
// Prints: sum 11.0 22.0 33.0 44.0

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/reduce/reduce_cuda.h"

namespace {

namespace bk = brigade::kernels;

// sum = a + b, of `size` elements in device memory.
cudaError_t Sum(const float* a, const float* b, float* sum, int64_t size, cudaStream_t stream) {
  bk::ReduceArrays arrays = {};
  arrays.sources[0] = a;
  arrays.sources[1] = b;
  arrays.source_count = 2;
  arrays.targets[0] = sum;
  arrays.target_count = 1;
  arrays.size = size;
  return bk::LaunchReduce<float>(arrays, bk::ReduceOp::kSum, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    float a[4], b[4], sum[4];
  };
  Memory host = {{1, 2, 3, 4}, {10, 20, 30, 40}, {}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Sum(device->a, device->b, device->sum, 4, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("sum %.1f %.1f %.1f %.1f\n", host.sum[0], host.sum[1], host.sum[2], host.sum[3]);
  Check(cudaFree(device));
}
