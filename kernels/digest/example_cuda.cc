// The digest of a tensor of the GPU. It needs digest_cuda.cu with what it includes, and the CUDA
// runtime.
//
// Prints: digest 08d9f497bea00000

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/digest/digest_cuda.h"

namespace {

namespace bk = brigade::kernels;

// Adds the digest of a whole tensor of `bytes` to `digest`; both in device memory.
cudaError_t AddDigest(const void* tensor, int64_t bytes, bk::TensorDigest* digest,
                      cudaStream_t stream) {
  const bk::DigestSegment whole = {tensor,       bytes,       /*first=*/0, /*run=*/0,
                                   /*stride=*/0, /*digest=*/0};
  return bk::LaunchDigest(&whole, 1, digest, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    float tensor[4];
    bk::TensorDigest digest;
  };
  Memory host = {{1, -7, 3, 4}, {}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(AddDigest(device->tensor, sizeof(device->tensor), &device->digest, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("digest %016llx\n", static_cast<unsigned long long>(host.digest.words[0]));
  Check(cudaFree(device));
}
