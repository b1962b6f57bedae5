// The steps of PowerSGD on one matrix, on the GPU: a factor of rank 1 and what it leaves out. It
// needs orthogonalize_cuda.cu with what it includes, and the CUDA runtime.
//
// Prints: product 2.7 0.3 0.9 0.1, error 0.3 -0.3 -0.9 0.9

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/orthogonalize/orthogonalize_cuda.h"

namespace {

namespace bk = brigade::kernels;

// A matrix becomes what the product of two factors leaves of it; both in device memory, `q` the
// last step's factor, one rank's.
cudaError_t Compress(float* matrix, float* p, float* q, float* product, int64_t rows,
                     int64_t columns, cudaStream_t stream) {
  const bk::LowRankSegment segment = {matrix,    p,       q, product, /*workspace=*/nullptr,
                                      rows,      columns,
                                      /*rank=*/1};
  const bk::OrthogonalizeSegment factor = {p, rows, /*columns=*/1};
  cudaError_t error = bk::LaunchLowRankRows(&segment, 1, stream);
  if (error != cudaSuccess) return error;
  // With several ranks: the sum of p over them.
  error = bk::LaunchOrthogonalize(&factor, 1, /*epsilon=*/1e-8, stream);
  if (error != cudaSuccess) return error;
  error = bk::LaunchLowRankColumns(&segment, 1, stream);
  if (error != cudaSuccess) return error;
  // With several ranks: the mean of q over them.
  return bk::LaunchLowRankRestore(&segment, 1, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    float matrix[4], p[2], q[2], product[4];
  };
  Memory host = {{3, 0, 0, 1}, {}, {0.5f, 0.5f}, {}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Compress(device->matrix, device->p, device->q, device->product, 2, 2, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  const float *a = host.product, *b = host.matrix;
  std::printf("product %.1f %.1f %.1f %.1f, error %.1f %.1f %.1f %.1f\n", a[0], a[1], a[2], a[3],
              b[0], b[1], b[2], b[3]);
  Check(cudaFree(device));
}
