// A value everywhere in an array of the GPU. It needs fill_cuda.cu with what it includes, and the
// CUDA runtime.
//
// Prints: data 1.25 1.25 1.25 1.25

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/fill/fill_cuda.h"

namespace {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  namespace bk = brigade::kernels;
  float data[4] = {};
  void* device = nullptr;
  Check(cudaMalloc(&device, sizeof(data)));
  const bk::FillSegment segment = {device, /*size=*/4};
  Check(bk::LaunchFill(&segment, 1, bk::MakeFillPattern(1.25f), sizeof(float),
                       /*stream=*/nullptr));
  Check(cudaMemcpy(data, device, sizeof(data), cudaMemcpyDeviceToHost));
  std::printf("data %.2f %.2f %.2f %.2f\n", data[0], data[1], data[2], data[3]);
  Check(cudaFree(device));
}
