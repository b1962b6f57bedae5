// Two steps of LAMB on the GPU, the second one in passes. It needs lamb_cuda.cu with what it
// includes, and the CUDA runtime.
//
// Prints: param 0.45 0.45 -0.55 -0.55, then 0.40 0.40 -0.60 -0.60 with trust 0.50

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/lamb/lamb_cuda.h"
#include "brigade/kernels/lamb/lamb_parameters.h"

namespace {

namespace bk = brigade::kernels;

// The parameters of a step, counted from 1.
bk::LambParameters ParametersOf(int64_t step) {
  const bk::LambGroup group;
  const float lr = 0.1f;
  return bk::MakeLambParameters(&group, 1, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
}

// One step of a tensor of `size` elements in device memory, as are the sums of its tiles, one for
// each kLambTile elements.
cudaError_t Step(float* param, float* m, float* v, const float* grad, bk::LambSums* tiles,
                 int64_t size, int64_t step, cudaStream_t stream) {
  const bk::LambSegment tensor = {param, m, v, grad, /*param_copy=*/nullptr, size, /*group=*/0};
  return bk::LaunchLamb<float, bk::NoCopy>(&tensor, 1, ParametersOf(step), tiles, stream);
}

// The same for tensors of which each of several ranks has a piece; here one rank has all.
// `piece.trust` is device memory, too.
cudaError_t StepInPasses(const bk::LambSegment& piece, bk::LambSums* tiles, float* trust,
                         int64_t step, cudaStream_t stream) {
  const bk::LambParameters parameters = ParametersOf(step);
  cudaError_t error = bk::LaunchLambMoments<float>(&piece, 1, parameters, tiles, stream);
  if (error != cudaSuccess) return error;
  // Now ranks gather the sums of all tiles.
  const int64_t count = (piece.size + bk::kLambTile - 1) / bk::kLambTile;
  const bk::LambTensor tensor = {/*first=*/0,      count,
                                 /*offset=*/0,     /*part=*/count,
                                 /*stride=*/count, piece.group};
  error = bk::LaunchLambTrusts(&tensor, 1, parameters, tiles, trust, stream);
  if (error != cudaSuccess) return error;
  return bk::LaunchLambParams<bk::NoCopy>(&piece, 1, parameters, stream);
}

struct Memory {
  bk::LambSums tiles[1];
  float param[4], m[4], v[4], grad[4], trust;
};

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  // With the same gradient in each step the update is its sign: its norm is 2, that of param 1.
  Memory host = {{}, {0.5f, 0.5f, -0.5f, -0.5f}, {}, {}, {8, 8, 8, 8}, 0};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Step(device->param, device->m, device->v, device->grad, device->tiles, 4, /*step=*/1,
             nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  const float* const p = host.param;
  std::printf("param %.2f %.2f %.2f %.2f", p[0], p[1], p[2], p[3]);

  const bk::LambSegment piece = {device->param, device->m,     device->v,
                                 device->grad,  nullptr,       /*size=*/4,
                                 /*group=*/0,   &device->trust};
  Check(StepInPasses(piece, device->tiles, &device->trust, /*step=*/2, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf(", then %.2f %.2f %.2f %.2f with trust %.2f\n", p[0], p[1], p[2], p[3], host.trust);
  Check(cudaFree(device));
}
