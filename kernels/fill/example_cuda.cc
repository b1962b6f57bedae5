// A value everywhere in an array of the GPU. It needs fill_cuda.cu with what it includes, and the
// CUDA runtime.
//
// Prints: data 1.25 1.25 1.25 1.25

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/fill/fill_cuda.h"

namespace {

namespace bk = brigade::kernels;

// `value` in `size` elements of device memory.
cudaError_t Fill(float* data, int64_t size, float value, cudaStream_t stream) {
  const bk::FillSegment segment = {data, size};
  return bk::LaunchFill(&segment, 1, bk::MakeFillPattern(value), sizeof(float), stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  float data[4] = {};
  float* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(data)));
  Check(Fill(device, 4, 1.25f, nullptr));
  Check(cudaMemcpy(data, device, sizeof(data), cudaMemcpyDeviceToHost));
  std::printf("data %.2f %.2f %.2f %.2f\n", data[0], data[1], data[2], data[3]);
  Check(cudaFree(device));
}
