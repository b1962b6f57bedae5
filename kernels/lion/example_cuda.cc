// One step of Lion on the GPU. It needs lion_cuda.cu with what it includes, and the
// CUDA runtime.
//
// Prints: param 0.90 1.90 3.10 4.00

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/lion/lion_cuda.h"
#include "brigade/kernels/lion/lion_parameters.h"

namespace {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  namespace bk = brigade::kernels;
  float param[4] = {1, 2, 3, 4};
  const float grad[4] = {8, 8, -8, 0};
  // param, m and the gradient.
  float* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), 12 * sizeof(float)));
  Check(cudaMemcpy(device, param, sizeof(param), cudaMemcpyHostToDevice));
  Check(cudaMemset(device + 4, 0, 4 * sizeof(float)));
  Check(cudaMemcpy(device + 8, grad, sizeof(grad), cudaMemcpyHostToDevice));

  const bk::LionGroup group = {/*beta1=*/0.9, /*beta2=*/0.99, /*weight_decay=*/0.0};
  const float lr = 0.1f;
  const bk::OneStep step = {/*step=*/1, &lr, /*grad_multiplier=*/1.0f};
  const bk::LionParameters parameters = bk::MakeLionParameters(&group, 1, step);
  const bk::LionSegment segment = {device,     device + 4, device + 8, /*param_copy=*/nullptr,
                                   /*size=*/4, /*group=*/0};
  Check(bk::LaunchLion<float, bk::NoCopy>(&segment, 1, parameters, /*stream=*/nullptr));
  Check(cudaMemcpy(param, device, sizeof(param), cudaMemcpyDeviceToHost));
  std::printf("param %.2f %.2f %.2f %.2f\n", param[0], param[1], param[2], param[3]);
  Check(cudaFree(device));
}
