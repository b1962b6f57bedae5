// One step of AdamW on the GPU. It needs adam_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: param 0.99899 1.99898 2.99897 3.99896

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/adam/adam_cuda.h"
#include "brigade/kernels/adam/adam_parameters.h"

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
  const float grad[4] = {8, 8, 8, 8};
  // param, m, v and the gradient.
  float* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), 16 * sizeof(float)));
  Check(cudaMemcpy(device, param, sizeof(param), cudaMemcpyHostToDevice));
  Check(cudaMemset(device + 4, 0, 8 * sizeof(float)));
  Check(cudaMemcpy(device + 12, grad, sizeof(grad), cudaMemcpyHostToDevice));

  const bk::AdamGroup group = {/*beta1=*/0.9, /*beta2=*/0.999, /*eps=*/1e-8,
                               /*weight_decay=*/0.01};
  const float lr = 1e-3f;
  const bk::OneStep step = {/*step=*/1, &lr, /*grad_multiplier=*/1.0f};
  const bk::AdamParameters parameters =
      bk::MakeAdamParameters(&group, 1, bk::WeightDecayMode::kDecoupled, step);
  const bk::AdamSegment segment = {
      device,     device + 4, device + 8, device + 12, /*param_copy=*/nullptr, /*size=*/4,
      /*group=*/0};
  Check(bk::LaunchAdam<float, bk::NoCopy>(&segment, 1, parameters, /*stream=*/nullptr));
  Check(cudaMemcpy(param, device, sizeof(param), cudaMemcpyDeviceToHost));
  std::printf("param %.5f %.5f %.5f %.5f\n", param[0], param[1], param[2], param[3]);
  Check(cudaFree(device));
}
