// A cast from bfloat16 to float on the GPU. It needs cast_cuda.cu with what it includes, and the
// CUDA runtime.
//
// Prints: target 2.5 5.0 7.5 10.0

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/cast/cast_cuda.h"

namespace {

namespace bk = brigade::kernels;

using brigade::precision::BFloat16;

// target = *scale * source, of `size` elements; all pointers are device memory.
cudaError_t Scaled(const BFloat16* source, const float* scale, float* target, int64_t size,
                   cudaStream_t stream) {
  const bk::CastSegment segment = {source, target, size};
  return bk::LaunchCast<BFloat16, float>(&segment, 1, scale, /*accumulate=*/false, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    float target[4], scale;
    BFloat16 source[4];
  };
  Memory host = {{}, 2.5f, {BFloat16(1), BFloat16(2), BFloat16(3), BFloat16(4)}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Scaled(device->source, &device->scale, device->target, 4, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("target %.1f %.1f %.1f %.1f\n", host.target[0], host.target[1], host.target[2],
              host.target[3]);
  Check(cudaFree(device));
}
