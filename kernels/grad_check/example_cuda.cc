// The sum of squares of a gradient on the GPU, and whether all of it is finite. It needs
// grad_check_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: sum of squares 30.0, all finite

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/grad_check/grad_check_cuda.h"

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
    float grad[4];
    bk::GradStats stats;
    // One for every kGradTile elements of each segment.
    double workspace[1];
  };
  const float grad[4] = {1, 2, 3, 4};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device->grad, grad, sizeof(grad), cudaMemcpyHostToDevice));
  const bk::GradSegment segment = {device->grad, /*size=*/4};
  Check(bk::LaunchGradCheck<float>(&segment, 1, device->workspace, &device->stats,
                                   /*stream=*/nullptr));
  bk::GradStats stats = {};
  Check(cudaMemcpy(&stats, &device->stats, sizeof(stats), cudaMemcpyDeviceToHost));
  std::printf("sum of squares %.1f, %s\n", stats.sum_of_squares,
              stats.all_finite != 0 ? "all finite" : "not finite");
  Check(cudaFree(device));
}
