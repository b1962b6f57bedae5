// The mean of two ranks' messages on the GPU. It needs dequant_reduce_cuda.cu with what it
// includes, and the CUDA runtime.
//
// Prints: mean 0.0 5.0 7.0 -7.0

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/dequant_reduce/dequant_reduce_cuda.h"

namespace {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  namespace bk = brigade::kernels;
  constexpr auto kFormat = bk::QuantFormat::kInt4;
  // Of one block: its maximum, and codes 7 3 7 -7 and -7 7 7 -7 in the low halves of bytes.
  struct Message {
    alignas(bk::kQuantAlignment) float maximum;
    alignas(bk::kQuantAlignment) unsigned char codes[bk::QuantBlockBytes(kFormat)];
  };
  static_assert(sizeof(Message) == bk::QuantBytes(4, kFormat), "a message");
  const Message messages[2] = {{7, {7, 3, 7, 9}}, {7, {9, 7, 7, 9}}};
  struct Memory {
    Message messages[2];
    float mean[4];
  };
  float mean[4] = {};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device->messages, messages, sizeof(messages), cudaMemcpyHostToDevice));

  bk::DequantReduceParameters parameters;
  parameters.ranks = 2;
  parameters.stride = sizeof(Message);
  parameters.factor = 0.5f;
  const bk::DequantReduceSegment segment = {device->messages, device->mean, /*size=*/4};
  Check(bk::LaunchDequantReduce<float>(&segment, 1, kFormat, parameters, /*stream=*/nullptr));
  Check(cudaMemcpy(mean, device->mean, sizeof(mean), cudaMemcpyDeviceToHost));
  std::printf("mean %.1f %.1f %.1f %.1f\n", mean[0], mean[1], mean[2], mean[3]);
  Check(cudaFree(device));
}
