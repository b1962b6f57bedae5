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

namespace bk = brigade::kernels;

// The `k` of `size` elements, which become 0; with a workspace of TopKWorkspaceSize(size). All in
// device memory.
cudaError_t Take(float* array, int64_t size, float* values, int32_t* indices, int64_t k,
                 uint32_t* workspace, cudaStream_t stream) {
  const bk::TopKSegment segment = {array, values, indices, workspace, size, k};
  return bk::LaunchTopK<float>(&segment, 1, /*clear=*/true, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
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
  Check(Take(device->array, 4, device->values, device->indices, 2, device->workspace, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  const float* const left = host.array;
  std::printf("%.1f at %d, %.1f at %d; left %.1f %.1f %.1f %.1f\n", host.values[0], host.indices[0],
              host.values[1], host.indices[1], left[0], left[1], left[2], left[3]);
  Check(cudaFree(device));
}
