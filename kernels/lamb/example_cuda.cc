// One step of LAMB on the GPU. It needs lamb_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: param 0.45 0.45 -0.55 -0.55

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/lamb/lamb_cuda.h"
#include "brigade/kernels/lamb/lamb_parameters.h"

namespace {

namespace bk = brigade::kernels;

// One step, counted from 1, of a tensor of `size` elements in device memory, as are the sums of its
// tiles, one for each kLambTile elements.
cudaError_t Step(float* param, float* m, float* v, const float* grad, bk::LambSums* tiles,
                 int64_t size, int64_t step, cudaStream_t stream) {
  const bk::LambGroup group;
  const float lr = 0.1f;
  const bk::LambParameters parameters =
      bk::MakeLambParameters(&group, 1, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
  const bk::LambSegment tensor = {param, m, v, grad, /*param_copy=*/nullptr, size, /*group=*/0};
  return bk::LaunchLamb<float, bk::NoCopy>(&tensor, 1, parameters, tiles, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    bk::LambSums tiles[1];
    float param[4], m[4], v[4], grad[4];
  };
  // In the first step the update is the sign of the gradient: its norm is 2, that of param 1.
  Memory host = {{}, {0.5f, 0.5f, -0.5f, -0.5f}, {}, {}, {8, 8, 8, 8}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Step(device->param, device->m, device->v, device->grad, device->tiles, 4, /*step=*/1,
             nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("param %.2f %.2f %.2f %.2f\n", host.param[0], host.param[1], host.param[2],
              host.param[3]);
  Check(cudaFree(device));
}
