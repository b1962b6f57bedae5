// One step of Muon on the GPU: of a matrix with singular values 30 and 4. It needs muon_cuda.cu
// with what it includes, and the CUDA runtime.
//
// Prints: update 0.71 0.00 0.00 0.69, param 0.93 0.00 0.00 0.93

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/muon/muon_cuda.h"
#include "brigade/kernels/muon/muon_parameters.h"

namespace {

namespace bk = brigade::kernels;

// The parameters of a step, counted from 1.
bk::MuonParameters ParametersOf(int64_t step) {
  const bk::MuonGroup group = {/*momentum=*/0.95, /*nesterov=*/true, /*weight_decay=*/0.0};
  const float lr = 0.1f;
  return bk::MakeMuonParameters(&group, 1, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
}

// One step of a matrix in device memory, as is a workspace of MuonWorkspaceSize(rows, columns).
cudaError_t Step(float* param, float* momentum, float* update, const float* grad, float* workspace,
                 int64_t rows, int64_t columns, int64_t step, cudaStream_t stream) {
  const int64_t size = rows * columns;
  const bk::MuonParameters parameters = ParametersOf(step);
  const bk::MuonMomentumSegment moments = {momentum, update, grad, nullptr, size, /*group=*/0};
  const bk::MuonMatrix matrix = {update, workspace, rows, columns};
  const float scale = bk::MuonScaleOf(bk::MuonScale::kOriginal, rows, columns);
  const bk::MuonParamSegment params = {
      param, update, /*param_copy=*/nullptr, size, /*group=*/0, /*rate=*/1.0f, scale};
  cudaError_t error = bk::LaunchMuonMomentum<float>(&moments, 1, parameters, stream);
  if (error != cudaSuccess) return error;
  error = bk::LaunchMuonOrthogonalize(&matrix, 1, /*steps=*/5, bk::MuonCoefficients(),
                                      /*eps=*/1e-7, stream);
  if (error != cudaSuccess) return error;
  return bk::LaunchMuonParams<bk::NoCopy>(&params, 1, parameters, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    alignas(8) float workspace[bk::MuonWorkspaceSize(2, 2)];
    float param[4], momentum[4], update[4], grad[4];
  };
  Memory host = {{}, {1, 0, 0, 1}, {}, {}, {30, 0, 0, 4}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Step(device->param, device->momentum, device->update, device->grad, device->workspace, 2, 2,
             /*step=*/1, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("update %.2f %.2f %.2f %.2f, param %.2f %.2f %.2f %.2f\n", host.update[0],
              host.update[1], host.update[2], host.update[3], host.param[0], host.param[1],
              host.param[2], host.param[3]);
  Check(cudaFree(device));
}
