// Numbers as int4 codes and back on the GPU. It needs block_quant_cuda.cu with what it includes,
// and the CUDA runtime.
//
// Prints: 192 bytes, back 7.0 -4.0 1.0 0.0

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/block_quant/block_quant_cuda.h"

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
  struct Memory {
    alignas(bk::kQuantAlignment) unsigned char message[bk::QuantBytes(4, kFormat)];
    float array[4];
  };
  const float array[4] = {7, -3.5f, 1, 0.4f};
  float back[4] = {};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device->array, array, sizeof(array), cudaMemcpyHostToDevice));

  const bk::QuantizeSegment there = {device->array, device->message, /*size=*/4};
  Check(bk::LaunchBlockQuantize<float>(&there, 1, kFormat, /*stream=*/nullptr));
  const bk::DequantizeSegment again = {device->message, device->array, /*size=*/4};
  Check(bk::LaunchBlockDequantize<float>(&again, 1, kFormat, /*stream=*/nullptr));
  Check(cudaMemcpy(back, device->array, sizeof(back), cudaMemcpyDeviceToHost));
  std::printf("%d bytes, back %.1f %.1f %.1f %.1f\n", static_cast<int>(sizeof(device->message)),
              back[0], back[1], back[2], back[3]);
  Check(cudaFree(device));
}
