// Signs of an array on the GPU, and what they leave out. It needs sign_pack_cuda.cu and
// grad_check_cuda.cu with what they include, and the CUDA runtime.
//
// Prints: scale 20.0, error -16.0 8.0 16.0 8.0, back 20.0 20.0 -20.0 20.0

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/sign_pack/sign_pack_cuda.h"

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
    alignas(bk::kSignAlignment) unsigned char message[bk::SignBytes(4)];
    double workspace[1 + bk::kSignStatsDoubles];
    float array[4], error[4], scale;
  };
  Memory host = {};
  const float array[4] = {4, 28, -4, 28};
  for (int i = 0; i < 4; ++i) host.array[i] = array[i];
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));

  const bk::SignPackSegment segment = {device->array, device->error, device->message, /*size=*/4};
  Check(bk::LaunchSignPack<float>(&segment, 1, device->workspace, &device->scale,
                                  /*stream=*/nullptr));
  const bk::SignUnpackSegment back = {device->message, device->array, /*size=*/4};
  Check(bk::LaunchSignUnpack<float>(&back, 1, bk::SignUnpackParameters(), /*stream=*/nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("scale %.1f, error %.1f %.1f %.1f %.1f, back %.1f %.1f %.1f %.1f\n", host.scale,
              host.error[0], host.error[1], host.error[2], host.error[3], host.array[0],
              host.array[1], host.array[2], host.array[3]);
  Check(cudaFree(device));
}
