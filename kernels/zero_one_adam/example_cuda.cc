// What 0/1 Adam makes of an exchanged message on the GPU, in a meeting whose rates are a sum of
// 0.3. It needs zero_one_adam_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: moment 0.50 -1.00

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/zero_one_adam/zero_one_adam_cuda.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_parameters.h"

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
    bk::GroupStep meeting;
    bk::ZeroOneNumbers numbers;
    float betas[2];
    float message[2];
  };
  Memory host = {};
  host.numbers.rates = 0.1f;  // of the step before
  const bk::AdamGroup group = {0.9, 0.999, 1e-8, 0.0};
  bk::FillZeroOneBetas(&group, /*count=*/1, host.betas);
  host.message[0] = 0.15f, host.message[1] = -0.3f;
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));

  const float lr = 0.2f;
  const bk::OneStep step = {/*step=*/2, &lr, /*grad_multiplier=*/1.0f};
  const bk::ZeroOneRates rates =
      bk::MakeZeroOneRates(bk::ZeroOneCall::kMeet, /*groups=*/1, step, device->betas,
                           &device->numbers, &device->meeting);
  Check(bk::LaunchZeroOneRates(rates, /*stream=*/nullptr));
  const bk::ZeroOneMessage tensor = {device->message, /*size=*/2, /*group=*/0};
  Check(bk::LaunchZeroOneElements(&tensor, 1, bk::ZeroOneReceiveOperation{&device->numbers},
                                  /*stream=*/nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("moment %.2f %.2f\n", host.message[0], host.message[1]);
  Check(cudaFree(device));
}
