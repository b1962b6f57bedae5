// A value everywhere in an array of the GPU. It needs fill_cuda.cu with what it includes, and the
// CUDA runtime.
//
// Prints: data 1.25 1.25 1.25 1.25

#include <cuda_runtime_api.h>

#include <cstdio>

#include "brigade/kernels/fill/fill_cuda.h"

int main() {
  namespace bk = brigade::kernels;
  float data[4] = {};
  void* device = nullptr;
  if (cudaMalloc(&device, sizeof(data)) != cudaSuccess) return 1;
  const bk::FillSegment segment = {device, /*size=*/4};
  cudaError_t error = bk::LaunchFill(&segment, 1, bk::MakeFillPattern(1.25f), sizeof(float),
                                     /*stream=*/nullptr);
  if (error == cudaSuccess) error = cudaMemcpy(data, device, sizeof(data), cudaMemcpyDeviceToHost);
  std::printf("data %.2f %.2f %.2f %.2f\n", data[0], data[1], data[2], data[3]);
  cudaFree(device);
  return error == cudaSuccess ? 0 : 1;
}
