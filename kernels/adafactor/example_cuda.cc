// One step of Adafactor on the GPU: of a matrix whose gradient is a product of its rows' and
// columns' sizes, so that its update is 1 everywhere. It needs adafactor_cuda.cu with what it
// includes, and the CUDA runtime.
//
// Prints: rows 40.0 10.0, columns 10.0 40.0, param 0.9 0.9 0.9 0.9

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/adafactor/adafactor_cuda.h"
#include "brigade/kernels/adafactor/adafactor_parameters.h"

namespace {

namespace bk = brigade::kernels;

// The parameters of a step, counted from 1.
bk::AdafactorParameters ParametersOf(int64_t step) {
  const bk::AdafactorGroup group;
  bk::AdafactorSettings settings;
  settings.scale_parameter = false;
  settings.relative_step = false;
  const float lr = 0.1f;
  return bk::MakeAdafactorParameters(&group, 1, settings,
                                     bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
}

// One step of a matrix in device memory, with factors of AdafactorFactorCount(rows, columns)
// floats, scales of kAdafactorNumbers more, and a workspace of AdafactorWorkspaceSize(rows,
// columns) doubles.
cudaError_t Step(float* param, const float* grad, float* factors, float* scales, double* workspace,
                 int64_t rows, int64_t columns, int64_t step, cudaStream_t stream) {
  const bk::AdafactorParameters parameters = ParametersOf(step);
  const bk::AdafactorTensor tensor = {/*param=*/nullptr, grad, factors, scales,
                                      workspace,         rows, columns, /*group=*/0};
  const bk::AdafactorSegment whole = {param,          /*m=*/nullptr, grad, /*param_copy=*/nullptr,
                                      rows * columns, scales,        rows, columns,
                                      /*first=*/0,    /*group=*/0};
  const cudaError_t error = bk::LaunchAdafactorFactors<float>(&tensor, 1, parameters, stream);
  if (error != cudaSuccess) return error;
  return bk::LaunchAdafactorParams<float, bk::NoCopy>(&whole, 1, parameters, stream);
}

void Check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

int main() {
  struct Memory {
    double workspace[bk::AdafactorWorkspaceSize(2, 2)];
    float param[4], grad[4], factors[4], scales[bk::kAdafactorNumbers + 4];
  };
  Memory host = {{}, {1, 1, 1, 1}, {4, 8, 2, 4}, {}, {}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));
  Check(Step(device->param, device->grad, device->factors, device->scales, device->workspace, 2, 2,
             /*step=*/1, nullptr));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  const float* const f = host.factors;
  std::printf("rows %.1f %.1f, columns %.1f %.1f, param %.1f %.1f %.1f %.1f\n", f[0], f[1], f[2],
              f[3], host.param[0], host.param[1], host.param[2], host.param[3]);
  Check(cudaFree(device));
}
