// The same numbers twice as int4 codes with error feedback on the GPU: what the first message
// leaves out enters the second one. It needs loco_quant_cuda.cu with what it includes, and
// the CUDA runtime.
//
// Prints: 7.0 -4.0 1.0 0.0, then 7.0 -3.0 1.0 1.0

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "brigade/kernels/loco_quant/loco_quant_cuda.h"

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
    alignas(bk::kQuantAlignment) unsigned char error[bk::QuantBytes(4, bk::kLocoErrors)];
    alignas(bk::kQuantAlignment) unsigned char message[bk::QuantBytes(4, kFormat)];
    float array[4];
  };
  const float array[4] = {7, -3.5f, 1, 0.4f};
  unsigned char message[sizeof(Memory::message)];
  float sent[2][4];
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemset(device->error, 0, sizeof(device->error)));
  Check(cudaMemcpy(device->array, array, sizeof(array), cudaMemcpyHostToDevice));

  bk::LocoParameters parameters;
  parameters.beta = 0.25f;
  for (int step = 0; step < 2; ++step) {
    const bk::LocoSegment there = {device->array, device->error, device->message, /*size=*/4};
    Check(bk::LaunchLocoQuantize<float>(&there, 1, kFormat, parameters, /*stream=*/nullptr));
    Check(cudaMemcpy(message, device->message, sizeof(message), cudaMemcpyDeviceToHost));
    float maximum;
    std::memcpy(&maximum, message, sizeof(maximum));
    for (int i = 0; i < 4; ++i) {
      const int code = bk::LowCode(message[bk::QuantCodesBegin(4) + i]);
      sent[step][i] = bk::ValueOf<kFormat>(maximum, code);
    }
  }
  std::printf("%.1f %.1f %.1f %.1f, then %.1f %.1f %.1f %.1f\n", sent[0][0], sent[0][1], sent[0][2],
              sent[0][3], sent[1][0], sent[1][1], sent[1][2], sent[1][3]);
  Check(cudaFree(device));
}
