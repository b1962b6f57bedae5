// What 1-bit LAMB learns in a step of its warm-up on the GPU, what a rank sends in a step once
// second moments stay, and what it makes of it, as of one rank whose message lost nothing. It needs
// one_bit_lamb_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: ratio 0.05, scale 1.00, m 6.00 6.00 6.00 6.00, factor 0.90

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cuda.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_parameters.h"

namespace {

namespace bk = brigade::kernels;

// What there is of a tensor, in device memory.
struct Memory {
  bk::LambSums tiles[1];
  bk::OneBitLambSums sums[1];
  double total;
  bk::OneBitLambNumbers numbers;
  float trust, param[4], m[4], v[4], fresh[4], message[4], grad[4];
};

// The parameters of a step, counted from 1: in a late one no bias is left to correct.
bk::LambParameters ParametersOf(int64_t step) {
  bk::LambGroup group;
  group.beta1 = 0.5;
  group.beta2 = 0.75;
  group.eps = 1e-12;
  const float lr = 0.1f;
  return bk::MakeLambParameters(&group, 1, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
}

// A tensor of one tile, of one rank.
const bk::LambTensor kTile = {/*first=*/0, /*count=*/1,  /*offset=*/0,
                              /*part=*/1,  /*stride=*/1,
                              /*group=*/0};

bk::OneBitLambSegment SegmentOf(Memory* d) {
  return {d->param,        d->m, d->v, d->fresh, d->message, /*size=*/4, /*group=*/0, /*tensor=*/0,
          /*first_tile=*/0};
}
bk::OneBitLambMessage MessageOf(Memory* d) {
  return {d->m, d->grad, d->message, /*size=*/4, /*group=*/0, /*tensor=*/0};
}

// In each step of the warm-up, from the sums of LaunchLambMoments: the mean of trust ratios.
cudaError_t WarmUp(Memory* d, int64_t step, cudaStream_t stream) {
  return bk::LaunchOneBitLambRatios(&kTile, 1, ParametersOf(step), bk::MakeOneBitLambConstants({}),
                                    d->tiles, &d->numbers, stream);
}

// Once: second moments stay as they are from now on.
cudaError_t Freeze(Memory* d, cudaStream_t stream) {
  const bk::OneBitLambSegment tensor = SegmentOf(d);
  const int64_t size = tensor.size;
  const cudaError_t error = bk::LaunchOneBitLambFreeze(&tensor, 1, &d->numbers, d->sums, stream);
  if (error != cudaSuccess) return error;
  return bk::LaunchOneBitLambScales(&kTile, &size, 1, d->sums, &d->total, &d->numbers, stream);
}

// In each step: what this rank sends; then ranks exchange messages, and each gets the mean.
cudaError_t Send(Memory* d, int64_t step, cudaStream_t stream) {
  const bk::OneBitLambMessage own = MessageOf(d);
  return bk::LaunchOneBitLambSend<float>(&own, 1, ParametersOf(step), &d->numbers, stream);
}

// From the mean: the new first moment, and the trust ratio for LaunchLambParams.
cudaError_t Receive(Memory* d, int64_t step, cudaStream_t stream) {
  const bk::OneBitLambMessage mean = MessageOf(d);
  const bk::OneBitLambSegment tensor = SegmentOf(d);
  const bk::LambParameters parameters = ParametersOf(step);
  cudaError_t error = bk::LaunchOneBitLambReceive(&mean, 1, &d->numbers, stream);
  if (error != cudaSuccess) return error;
  error = bk::LaunchOneBitLambMoments(&tensor, 1, parameters, d->sums, stream);
  if (error != cudaSuccess) return error;
  return bk::LaunchOneBitLambTrusts(&kTile, 1, parameters, bk::MakeOneBitLambConstants({}), d->sums,
                                    &d->numbers, &d->trust, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  Memory host = {};
  // Sums of squares of the parameter and its update; their norms have the ratio 1/2.
  host.tiles[0] = {1.0, 4.0};
  for (int i = 0; i < 4; ++i) {
    host.param[i] = 0.5f, host.m[i] = 4.0f, host.v[i] = 16.0f, host.grad[i] = 8.0f;
  }
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(WarmUp(device, /*step=*/999, nullptr));
  Check(Freeze(device, nullptr));
  Check(Send(device, /*step=*/1000, nullptr));
  Check(Receive(device, /*step=*/1000, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("ratio %.2f, scale %.2f, m %.2f %.2f %.2f %.2f, factor %.2f\n", host.numbers.ratio,
              host.numbers.scale, host.m[0], host.m[1], host.m[2], host.m[3], host.numbers.factor);
  Check(cudaFree(device));
}
