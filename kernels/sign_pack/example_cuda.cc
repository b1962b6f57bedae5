// Signs of an array on the GPU, and what they leave out. It needs sign_pack_cuda.cu and
// grad_check_cuda.cu with what they include, and the CUDA runtime.
//
// Prints: scale 20.0, error -16.0 8.0 16.0 8.0, back 20.0 20.0 -20.0 20.0

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/sign_pack/sign_pack_cuda.h"

namespace {

namespace bk = brigade::kernels;

// The signs of an array as a message of SignBytes(size), what they leave out in `error`, which is
// zeros at first, and what a receiver makes of them in `back`; with a workspace of a double for
// each tile and kSignStatsDoubles more. All in device memory.
cudaError_t ThereAndBack(const float* array, float* error, void* message, float* scale,
                         double* workspace, float* back, int64_t size, cudaStream_t stream) {
  const bk::SignPackSegment there = {array, error, message, size};
  const cudaError_t status = bk::LaunchSignPack<float>(&there, 1, workspace, scale, stream);
  if (status != cudaSuccess) return status;
  const bk::SignUnpackSegment again = {message, back, size};
  return bk::LaunchSignUnpack<float>(&again, 1, bk::SignUnpackParameters(), stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    alignas(bk::kSignAlignment) unsigned char message[bk::SignBytes(4)];
    double workspace[1 + bk::kSignStatsDoubles];
    float array[4], error[4], scale, back[4];
  };
  Memory host = {{}, {}, {4, 28, -4, 28}, {}, 0, {}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(ThereAndBack(device->array, device->error, device->message, &device->scale,
                     device->workspace, device->back, 4, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  const float *e = host.error, *b = host.back;
  std::printf("scale %.1f, error %.1f %.1f %.1f %.1f, back %.1f %.1f %.1f %.1f\n", host.scale, e[0],
              e[1], e[2], e[3], b[0], b[1], b[2], b[3]);
  Check(cudaFree(device));
}
