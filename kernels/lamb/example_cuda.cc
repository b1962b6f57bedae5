// One step of LAMB on the GPU. It needs lamb_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: param 0.45 0.45 -0.55 -0.55

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/lamb/lamb_cuda.h"
#include "brigade/kernels/lamb/lamb_parameters.h"

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
    bk::LambSums tiles[1];
    float param[4], m[4], v[4], grad[4];
  };
  Memory host = {{}, {0.5f, 0.5f, -0.5f, -0.5f}, {}, {}, {8, 8, 8, 8}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));

  // In the first step the update is the sign of the gradient: its norm is 2, that of param 1.
  const bk::LambGroup group;
  const float lr = 0.1f;
  const bk::OneStep step = {/*step=*/1, &lr, /*grad_multiplier=*/1.0f};
  const bk::LambParameters parameters = bk::MakeLambParameters(&group, 1, step);
  const bk::LambSegment tensor = {device->param,          device->m,  device->v,  device->grad,
                                  /*param_copy=*/nullptr, /*size=*/4, /*group=*/0};
  Check(bk::LaunchLamb<float, bk::NoCopy>(&tensor, 1, parameters, device->tiles,
                                          /*stream=*/nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("param %.2f %.2f %.2f %.2f\n", host.param[0], host.param[1], host.param[2],
              host.param[3]);
  Check(cudaFree(device));
}
