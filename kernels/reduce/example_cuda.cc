// The sum of two arrays of the GPU. It needs reduce_cuda.cu with what it includes, and the CUDA
// runtime.
//
// Prints: sum 11.0 22.0 33.0 44.0

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/reduce/reduce_cuda.h"

namespace {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  namespace bk = brigade::kernels;
  const float sources[2][4] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
  float sum[4] = {};
  // The two sources, then the target.
  float* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), 12 * sizeof(float)));
  Check(cudaMemcpy(device, sources, sizeof(sources), cudaMemcpyHostToDevice));

  bk::ReduceArrays arrays = {};
  arrays.sources[0] = device;
  arrays.sources[1] = device + 4;
  arrays.source_count = 2;
  arrays.targets[0] = device + 8;
  arrays.target_count = 1;
  arrays.size = 4;
  Check(bk::LaunchReduce<float>(arrays, bk::ReduceOp::kSum, /*stream=*/nullptr));
  Check(cudaMemcpy(sum, device + 8, sizeof(sum), cudaMemcpyDeviceToHost));
  std::printf("sum %.1f %.1f %.1f %.1f\n", sum[0], sum[1], sum[2], sum[3]);
  Check(cudaFree(device));
}
