// A cast from bfloat16 to float on the GPU. It needs cast_cuda.cu with what it includes, and the
// CUDA runtime.
//
// Prints: target 2.5 5.0 7.5 10.0

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/cast/cast_cuda.h"

namespace {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  namespace bk = brigade::kernels;
  using brigade::precision::BFloat16;
  const BFloat16 source[4] = {BFloat16(1), BFloat16(2), BFloat16(3), BFloat16(4)};
  float target[4] = {};
  const float scale = 2.5f;
  // The target, the scale, and the source.
  float* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), 8 * sizeof(float)));
  Check(cudaMemcpy(device + 4, &scale, sizeof(scale), cudaMemcpyHostToDevice));
  Check(cudaMemcpy(device + 5, source, sizeof(source), cudaMemcpyHostToDevice));

  const bk::CastSegment segment = {device + 5, device, /*size=*/4};
  Check(bk::LaunchCast<BFloat16, float>(&segment, 1, device + 4,
                                        /*accumulate=*/false, /*stream=*/nullptr));
  Check(cudaMemcpy(target, device, sizeof(target), cudaMemcpyDeviceToHost));
  std::printf("target %.1f %.1f %.1f %.1f\n", target[0], target[1], target[2], target[3]);
  Check(cudaFree(device));
}
