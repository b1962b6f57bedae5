// What a rank sends in a step of 1-bit LAMB on the GPU once second moments stay, and what it makes
// of it, as of one rank whose message lost nothing. It needs one_bit_lamb_cuda.cu with what it
// includes, and the CUDA runtime.
//
// Prints: scale 1.00, m 6.00 6.00 6.00 6.00, factor 0.90

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cuda.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_parameters.h"

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
    bk::OneBitLambSums sums[1];
    double total;
    bk::OneBitLambNumbers numbers;
    float trust, param[4], m[4], v[4], fresh[4], message[4], grad[4];
  };
  Memory host = {};
  host.numbers.ratio = 0.05f;
  for (int i = 0; i < 4; ++i) {
    host.param[i] = 0.5f, host.m[i] = 4.0f, host.v[i] = 16.0f, host.grad[i] = 8.0f;
  }
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));

  bk::LambGroup group;
  group.beta1 = 0.5;
  group.beta2 = 0.75;
  group.eps = 1e-12;
  const float lr = 0.1f;
  const bk::OneStep step = {/*step=*/1000, &lr, /*grad_multiplier=*/1.0f};
  const bk::LambParameters parameters = bk::MakeLambParameters(&group, 1, step);
  const bk::OneBitLambConstants constants = bk::MakeOneBitLambConstants({});
  // One tile of one rank.
  const bk::LambTensor tiles = {/*first=*/0, /*count=*/1,  /*offset=*/0,
                                /*part=*/1,  /*stride=*/1,
                                /*group=*/0};
  const bk::OneBitLambSegment tensor = {device->param,   device->m,  device->v,   device->fresh,
                                        device->message, /*size=*/4, /*group=*/0, /*tensor=*/0,
                                        /*first_tile=*/0};
  const bk::OneBitLambMessage own = {device->m,   device->grad, device->message, /*size=*/4,
                                     /*group=*/0, /*tensor=*/0};
  const int64_t size = 4;
  Check(bk::LaunchOneBitLambFreeze(&tensor, 1, &device->numbers, device->sums, nullptr));
  Check(bk::LaunchOneBitLambScales(&tiles, &size, 1, device->sums, &device->total, &device->numbers,
                                   nullptr));
  Check(bk::LaunchOneBitLambSend<float>(&own, 1, parameters, &device->numbers, nullptr));
  // Here ranks exchange messages, and each gets the mean.
  Check(bk::LaunchOneBitLambReceive(&own, 1, &device->numbers, nullptr));
  Check(bk::LaunchOneBitLambMoments(&tensor, 1, parameters, device->sums, nullptr));
  Check(bk::LaunchOneBitLambTrusts(&tiles, 1, parameters, constants, device->sums, &device->numbers,
                                   &device->trust, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("scale %.2f, m %.2f %.2f %.2f %.2f, factor %.2f\n", host.numbers.scale, host.m[0],
              host.m[1], host.m[2], host.m[3], host.numbers.factor);
  Check(cudaFree(device));
}
