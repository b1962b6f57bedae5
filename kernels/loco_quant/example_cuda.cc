// The same numbers twice as int4 codes with error feedback on the GPU: what the first message
// leaves out enters the second one. It needs loco_quant_cuda.cu with what it includes, and
// the CUDA runtime.
//
// Prints: 7.0 -4.0 1.0 0.0, then 7.0 -3.0 1.0 1.0

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "brigade/kernels/loco_quant/loco_quant_cuda.h"

namespace {

namespace bk = brigade::kernels;

constexpr auto kFormat = bk::QuantFormat::kInt4;

// `size` elements as a message of QuantBytes(size, kFormat), and the error that it leaves, which is
// zeros at first, of QuantBytes(size, kLocoErrors); all in device memory.
cudaError_t Send(const float* array, void* error, void* message, int64_t size,
                 cudaStream_t stream) {
  bk::LocoParameters parameters;
  parameters.beta = 0.25f;
  const bk::LocoSegment segment = {array, error, message, size};
  return bk::LaunchLocoQuantize<float>(&segment, 1, kFormat, parameters, stream);
}

// What the first four codes of a message stand for.
void Decode(const unsigned char* message, float* values) {
  float maximum;
  std::memcpy(&maximum, message, sizeof(maximum));
  for (int i = 0; i < 4; ++i) {
    const int code = bk::LowCode(message[bk::QuantCodesBegin(4) + i]);
    values[i] = bk::ValueOf<kFormat>(maximum, code);
  }
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    alignas(bk::kQuantAlignment) unsigned char error[bk::QuantBytes(4, bk::kLocoErrors)];
    alignas(bk::kQuantAlignment) unsigned char message[bk::QuantBytes(4, kFormat)];
    float array[4];
  };
  Memory host = {{}, {}, {7, -3.5f, 1, 0.4f}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  for (int step = 0; step < 2; ++step) {
    Check(Send(device->array, device->error, device->message, 4, nullptr));
    Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
    float v[4];
    Decode(host.message, v);
    std::printf("%s%.1f %.1f %.1f %.1f", step == 0 ? "" : ", then ", v[0], v[1], v[2], v[3]);
  }
  std::printf("\n");
  Check(cudaFree(device));
}
