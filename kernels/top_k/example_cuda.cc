// The two elements of greatest magnitude, and what is left, on the GPU. It needs top_k_cuda.cu with
// what it includes, and the CUDA runtime.
//
// Prints: -4.0 at 1, 3.0 at 2; left 1.0 0.0 0.0 3.0

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/top_k/top_k_cuda.h"

namespace {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  namespace bk = brigade::kernels;
  struct Memory {
    float array[4], values[2];
    int32_t indices[2];
    uint32_t workspace[bk::TopKWorkspaceSize(4)];
  };
  // Of equal magnitudes the first.
  static Memory host = {{1, -4, 3, 3}, {}, {}, {}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));

  const bk::TopKSegment segment = {device->array,     device->values, device->indices,
                                   device->workspace, /*size=*/4,     /*k=*/2};
  Check(bk::LaunchTopK<float>(&segment, 1, /*clear=*/true, /*stream=*/nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("%.1f at %d, %.1f at %d; left %.1f %.1f %.1f %.1f\n", host.values[0], host.indices[0],
              host.values[1], host.indices[1], host.array[0], host.array[1], host.array[2],
              host.array[3]);
  Check(cudaFree(device));
}
