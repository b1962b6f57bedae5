// One step of Muon on the GPU: of a matrix with singular values 30 and 4. It needs muon_cuda.cu
// with what it includes, and the CUDA runtime.
//
// Prints: update 0.71 0.00 0.00 0.69, param 0.93 0.00 0.00 0.93

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/muon/muon_cuda.h"
#include "brigade/kernels/muon/muon_parameters.h"

namespace {

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  namespace bk = brigade::kernels;
  float param[4] = {1, 0, 0, 1}, update[4];
  const float grad[4] = {30, 0, 0, 4};
  // param, momentum, update, the gradient and the workspace.
  constexpr int64_t kFloats = 16 + bk::MuonWorkspaceSize(2, 2);
  float* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), kFloats * sizeof(float)));
  Check(cudaMemset(device, 0, kFloats * sizeof(float)));
  Check(cudaMemcpy(device, param, sizeof(param), cudaMemcpyHostToDevice));
  Check(cudaMemcpy(device + 12, grad, sizeof(grad), cudaMemcpyHostToDevice));

  const bk::MuonGroup group = {/*momentum=*/0.95, /*nesterov=*/true, /*weight_decay=*/0.0};
  const float lr = 0.1f;
  const bk::OneStep step = {/*step=*/1, &lr, /*grad_multiplier=*/1.0f};
  const bk::MuonParameters parameters = bk::MakeMuonParameters(&group, 1, step);
  const bk::MuonMomentumSegment moments = {device + 4, device + 8, device + 12, nullptr, 4,
                                           /*group=*/0};
  const bk::MuonMatrix matrix = {device + 8, device + 16, /*rows=*/2, /*columns=*/2};
  const bk::MuonParamSegment params = {
      device,      device + 8,    nullptr,
      4,
      /*group=*/0, /*rate=*/1.0f, bk::MuonScaleOf(bk::MuonScale::kOriginal, 2, 2)};
  const cudaStream_t stream = nullptr;
  Check(bk::LaunchMuonMomentum<float>(&moments, 1, parameters, stream));
  Check(bk::LaunchMuonOrthogonalize(&matrix, 1, /*steps=*/5, bk::MuonCoefficients(), /*eps=*/1e-7,
                                    stream));
  Check(bk::LaunchMuonParams<bk::NoCopy>(&params, 1, parameters, stream));
  Check(cudaMemcpy(param, device, sizeof(param), cudaMemcpyDeviceToHost));
  Check(cudaMemcpy(update, device + 8, sizeof(update), cudaMemcpyDeviceToHost));
  std::printf("update %.2f %.2f %.2f %.2f, param %.2f %.2f %.2f %.2f\n", update[0], update[1],
              update[2], update[3], param[0], param[1], param[2], param[3]);
  Check(cudaFree(device));
}
