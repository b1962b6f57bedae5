// One step of AdamW with moments of 8 bits on the GPU. It needs adam8_cuda.cu with what it
// includes, and the CUDA runtime.
//
// Prints: param 0.99899 1.99898 2.99897 3.99896

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/adam8/adam8_cuda.h"
#include "brigade/kernels/adam8/adam8_parameters.h"

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
  // param, the gradient, a scale of each moment, and 4 codes of each in a float's bytes.
  float* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), 12 * sizeof(float)));
  Check(cudaMemcpy(device, param, sizeof(param), cudaMemcpyHostToDevice));
  Check(cudaMemcpy(device + 4, grad, sizeof(grad), cudaMemcpyHostToDevice));
  Check(cudaMemset(device + 8, 0, 4 * sizeof(float)));

  const bk::AdamGroup group = {/*beta1=*/0.9, /*beta2=*/0.999, /*eps=*/1e-8,
                               /*weight_decay=*/0.01};
  const float lr = 1e-3f;
  const bk::OneStep step = {/*step=*/1, &lr, /*grad_multiplier=*/1.0f};
  const bk::AdamParameters parameters =
      bk::MakeAdamParameters(&group, 1, bk::WeightDecayMode::kDecoupled, step);
  auto* const codes = reinterpret_cast<uint8_t*>(device + 10);
  const bk::Adam8Segment segment = {
      device,     codes,      codes + 4, device + 8, device + 9, device + 4, /*param_copy=*/nullptr,
      /*size=*/4, /*group=*/0};
  Check(bk::LaunchAdam8<float, bk::NoCopy>(&segment, 1, parameters, /*stream=*/nullptr));
  Check(cudaMemcpy(param, device, sizeof(param), cudaMemcpyDeviceToHost));
  std::printf("param %.5f %.5f %.5f %.5f\n", param[0], param[1], param[2], param[3]);
  Check(cudaFree(device));
}
