// Numbers as int4 codes and back on the GPU. It needs block_quant_cuda.cu with what it includes,
// and the CUDA runtime.
//
// Prints: 192 bytes, back 7.0 -4.0 1.0 0.0

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/block_quant/block_quant_cuda.h"

namespace {

namespace bk = brigade::kernels;

constexpr auto kFormat = bk::QuantFormat::kInt4;

// `size` elements as a message of QuantBytes(size, kFormat), aligned to kQuantAlignment, and back;
// all in device memory.
cudaError_t ThereAndBack(float* array, void* message, int64_t size, cudaStream_t stream) {
  const bk::QuantizeSegment there = {array, message, size};
  const cudaError_t error = bk::LaunchBlockQuantize<float>(&there, 1, kFormat, stream);
  if (error != cudaSuccess) return error;
  const bk::DequantizeSegment back = {message, array, size};
  return bk::LaunchBlockDequantize<float>(&back, 1, kFormat, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    alignas(bk::kQuantAlignment) unsigned char message[bk::QuantBytes(4, kFormat)];
    float array[4];
  };
  Memory host = {{}, {7, -3.5f, 1, 0.4f}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(ThereAndBack(device->array, device->message, 4, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("%d bytes, back %.1f %.1f %.1f %.1f\n", static_cast<int>(sizeof(host.message)),
              host.array[0], host.array[1], host.array[2], host.array[3]);
  Check(cudaFree(device));
}
