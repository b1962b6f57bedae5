// The steps of PowerSGD on one matrix, on the GPU: a factor of rank 1 and what it leaves out. It
// needs orthogonalize_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: product 2.7 0.3 0.9 0.1, error 0.3 -0.3 -0.9 0.9

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/orthogonalize/orthogonalize_cuda.h"

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
    float matrix[4], p[2], q[2], product[4];
  };
  Memory host = {{3, 0, 0, 1}, {}, {0.5f, 0.5f}, {}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));

  const bk::LowRankSegment segment = {device->matrix,
                                      device->p,
                                      device->q,
                                      device->product,
                                      /*workspace=*/nullptr,
                                      /*rows=*/2,
                                      /*columns=*/2,
                                      /*rank=*/1};
  const bk::OrthogonalizeSegment columns = {device->p, /*rows=*/2, /*columns=*/1};
  const cudaStream_t stream = nullptr;
  Check(bk::LaunchLowRankRows(&segment, 1, stream));
  // With several ranks: the sum of p over them.
  Check(bk::LaunchOrthogonalize(&columns, 1, /*epsilon=*/1e-8, stream));
  Check(bk::LaunchLowRankColumns(&segment, 1, stream));
  // With several ranks: the mean of q over them.
  Check(bk::LaunchLowRankRestore(&segment, 1, stream));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("product %.1f %.1f %.1f %.1f, error %.1f %.1f %.1f %.1f\n", host.product[0],
              host.product[1], host.product[2], host.product[3], host.matrix[0], host.matrix[1],
              host.matrix[2], host.matrix[3]);
  Check(cudaFree(device));
}
