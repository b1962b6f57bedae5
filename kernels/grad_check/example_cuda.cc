// The sum of squares of a gradient on the GPU, and whether all of it is finite. It needs
// grad_check_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: sum of squares 30.0, all finite

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/grad_check/grad_check_cuda.h"

namespace {

namespace bk = brigade::kernels;

// Of `size` elements, with a double of workspace for every kGradTile of them; all in device memory.
cudaError_t CheckGradient(const float* grad, int64_t size, double* workspace, bk::GradStats* stats,
                          cudaStream_t stream) {
  const bk::GradSegment segment = {grad, size};
  return bk::LaunchGradCheck<float>(&segment, 1, workspace, stats, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    float grad[4];
    bk::GradStats stats;
    double workspace[1];
  };
  Memory host = {{1, 2, 3, 4}, {}, {}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(CheckGradient(device->grad, 4, device->workspace, &device->stats, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("sum of squares %.1f, %s\n", host.stats.sum_of_squares,
              host.stats.all_finite != 0 ? "all finite" : "not finite");
  Check(cudaFree(device));
}
