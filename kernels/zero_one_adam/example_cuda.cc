// What 0/1 Adam makes of an exchanged message on the GPU, in a meeting whose rates are a sum of
// 0.3. It needs zero_one_adam_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: moment 0.50 -1.00

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/zero_one_adam/zero_one_adam_cuda.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_parameters.h"

namespace {

namespace bk = brigade::kernels;

// Counts a step's rate, of one group, in a call of its kind; `numbers` are zeros at first.
cudaError_t Count(bk::ZeroOneCall call, int64_t step, float lr, const float* betas,
                  bk::ZeroOneNumbers* numbers, bk::GroupStep* meeting, cudaStream_t stream) {
  const bk::OneStep one = {step, &lr, /*grad_multiplier=*/1.0f};
  const bk::ZeroOneRates rates =
      bk::MakeZeroOneRates(call, /*groups=*/1, one, betas, numbers, meeting);
  return bk::LaunchZeroOneRates(rates, stream);
}

// In a meeting: from the mean of the ranks' messages to the new first moment.
cudaError_t Receive(float* message, int64_t size, const bk::ZeroOneNumbers* numbers,
                    cudaStream_t stream) {
  const bk::ZeroOneMessage tensor = {message, size, /*group=*/0};
  const bk::ZeroOneReceiveOperation operation = {numbers};
  return bk::LaunchZeroOneElements(&tensor, 1, operation, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    bk::GroupStep meeting;
    bk::ZeroOneNumbers numbers;
    float betas[2], message[2];
  };
  Memory host = {{}, {/*rates, of the step before=*/0.1f, 0, 0, 0, 0}, {}, {0.15f, -0.3f}};
  const bk::AdamGroup group = {0.9, 0.999, 1e-8, 0.0};
  bk::FillZeroOneBetas(&group, /*count=*/1, host.betas);
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Count(bk::ZeroOneCall::kMeet, /*step=*/2, /*lr=*/0.2f, device->betas, &device->numbers,
              &device->meeting, nullptr));
  Check(Receive(device->message, 2, &device->numbers, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("moment %.2f %.2f\n", host.message[0], host.message[1]);
  Check(cudaFree(device));
}
