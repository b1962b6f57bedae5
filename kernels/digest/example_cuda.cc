// The digest of a tensor of the GPU. It needs digest_cuda.cu with what it includes, and the CUDA
// runtime.
//
// Prints: digest 08d9f497bea00000

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/digest/digest_cuda.h"

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
    float tensor[4];
    bk::TensorDigest digest;
  };
  const float tensor[4] = {1, -7, 3, 4};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device->tensor, tensor, sizeof(tensor), cudaMemcpyHostToDevice));
  // Digests are added to.
  Check(cudaMemset(&device->digest, 0, sizeof(device->digest)));
  const bk::DigestSegment whole = {device->tensor, sizeof(tensor), /*first=*/0, /*run=*/0,
                                   /*stride=*/0,   /*digest=*/0};
  Check(bk::LaunchDigest(&whole, 1, &device->digest, /*stream=*/nullptr));
  bk::TensorDigest digest = {};
  Check(cudaMemcpy(&digest, &device->digest, sizeof(digest), cudaMemcpyDeviceToHost));
  std::printf("digest %016llx\n", static_cast<unsigned long long>(digest.words[0]));
  Check(cudaFree(device));
}
