// The sum of squares of a gradient on the GPU, and whether all of it is finite. It needs
// grad_check_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: sum of squares 30.0, all finite; one by one 30.0, all finite

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

// The same of several gradients, each as soon as it is there, with room for the sums of the tiles
// of all.
cudaError_t CheckOneByOne(const bk::GradSegment* gradients, int64_t count, double* tile_sums,
                          bk::GradStats* stats, cudaStream_t stream) {
  int64_t tiles = 0;
  for (int64_t i = 0; i < count; ++i) {
    const cudaError_t error =
        bk::LaunchGradTileSums<float>(&gradients[i], 1, tile_sums + tiles, stream);
    if (error != cudaSuccess) return error;
    tiles += (gradients[i].size + bk::kGradTile - 1) / bk::kGradTile;
  }
  return bk::LaunchGradCheckFinish(tile_sums, tiles, stats, stream);
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
    bk::GradStats stats[2];
    double workspace[2];
  };
  Memory host = {{1, 2, 3, 4}, {}, {}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(CheckGradient(device->grad, 4, device->workspace, &device->stats[0], nullptr));
  const bk::GradSegment halves[2] = {{device->grad, 2}, {device->grad + 2, 2}};
  Check(CheckOneByOne(halves, 2, device->workspace, &device->stats[1], nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  const auto finite = [&](int i) { return host.stats[i].all_finite != 0 ? "all" : "not all"; };
  std::printf("sum of squares %.1f, %s finite; one by one %.1f, %s finite\n",
              host.stats[0].sum_of_squares, finite(0), host.stats[1].sum_of_squares, finite(1));
  Check(cudaFree(device));
}
