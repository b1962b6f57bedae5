// One step of AdamW on the GPU. It needs adam_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: param 0.99899 1.99898 2.99897 3.99896

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/adam/adam_cuda.h"
#include "brigade/kernels/adam/adam_parameters.h"

namespace {

namespace bk = brigade::kernels;

// One step, counted from 1, of `size` elements in device memory.
cudaError_t Step(float* param, float* m, float* v, const float* grad, int64_t size, int64_t step,
                 cudaStream_t stream) {
  const bk::AdamGroup group = {/*beta1=*/0.9, /*beta2=*/0.999, /*eps=*/1e-8,
                               /*weight_decay=*/0.01};
  const float lr = 1e-3f;
  const bk::AdamParameters parameters = bk::MakeAdamParameters(
      &group, 1, bk::WeightDecayMode::kDecoupled, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
  const bk::AdamSegment segment = {param, m, v, grad, /*param_copy=*/nullptr, size, /*group=*/0};
  return bk::LaunchAdam<float, bk::NoCopy>(&segment, 1, parameters, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    float param[4], m[4], v[4], grad[4];
  };
  Memory host = {{1, 2, 3, 4}, {}, {}, {8, 8, 8, 8}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Step(device->param, device->m, device->v, device->grad, 4, /*step=*/1, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("param %.5f %.5f %.5f %.5f\n", host.param[0], host.param[1], host.param[2],
              host.param[3]);
  Check(cudaFree(device));
}
