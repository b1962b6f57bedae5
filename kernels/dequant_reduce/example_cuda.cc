// The mean of two ranks' messages on the GPU. It needs dequant_reduce_cuda.cu with what it
// includes, and the CUDA runtime.
//
// Prints: mean 0.0 5.0 7.0 -7.0

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/dequant_reduce/dequant_reduce_cuda.h"

namespace {

namespace bk = brigade::kernels;

constexpr auto kFormat = bk::QuantFormat::kInt4;

// The mean of so many ranks' messages, which lie `stride` bytes apart; all in device memory.
cudaError_t Mean(const void* messages, int ranks, int64_t stride, float* mean, int64_t size,
                 cudaStream_t stream) {
  bk::DequantReduceParameters parameters;
  parameters.ranks = ranks;
  parameters.stride = stride;
  parameters.factor = 1.0f / static_cast<float>(ranks);
  const bk::DequantReduceSegment segment = {messages, mean, size};
  return bk::LaunchDequantReduce<float>(&segment, 1, kFormat, parameters, stream);
}

// Of one block: its maximum, and codes in the low halves of bytes.
struct Message {
  alignas(bk::kQuantAlignment) float maximum;
  alignas(bk::kQuantAlignment) unsigned char codes[bk::QuantBlockBytes(kFormat)];
};
static_assert(sizeof(Message) == bk::QuantBytes(4, kFormat), "a message");

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    Message messages[2];
    float mean[4];
  };
  // 7 3 7 -7 and -7 7 7 -7.
  Memory host = {{{7, {7, 3, 7, 9}}, {7, {9, 7, 7, 9}}}, {}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Mean(device->messages, 2, sizeof(Message), device->mean, 4, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("mean %.1f %.1f %.1f %.1f\n", host.mean[0], host.mean[1], host.mean[2], host.mean[3]);
  Check(cudaFree(device));
}
