// One step of SGD with momentum on the GPU. It needs sgd_cuda.cu with what it includes, and the
// CUDA runtime.
//
// Prints: param 0.20 1.20 2.20 3.20

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/sgd/sgd_cuda.h"
#include "brigade/kernels/sgd/sgd_parameters.h"

namespace {

namespace bk = brigade::kernels;

// One step, counted from 1, of `size` elements in device memory.
cudaError_t Step(float* param, float* momentum, const float* grad, int64_t size, int64_t step,
                 cudaStream_t stream) {
  const bk::SgdGroup group = {/*momentum=*/0.9, /*dampening=*/0.0, /*weight_decay=*/0.0,
                              /*nesterov=*/false};
  const float lr = 0.1f;
  const bk::SgdParameters parameters = bk::MakeSgdParameters(
      &group, 1, bk::WeightDecayMode::kCoupled, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
  const bk::SgdSegment segment = {param, momentum, grad, /*param_copy=*/nullptr, size, /*group=*/0};
  return bk::LaunchSgd<float, bk::NoCopy>(&segment, 1, parameters, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    float param[4], momentum[4], grad[4];
  };
  Memory host = {{1, 2, 3, 4}, {}, {8, 8, 8, 8}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Step(device->param, device->momentum, device->grad, 4, /*step=*/1, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("param %.2f %.2f %.2f %.2f\n", host.param[0], host.param[1], host.param[2],
              host.param[3]);
  Check(cudaFree(device));
}
