// One step of Adafactor on the GPU: of a matrix whose gradient is a product of its rows' and
// columns' sizes, so that its update is 1 everywhere. It needs adafactor_cuda.cu with what it
// includes, and the CUDA runtime.
//
// Prints: rows 40.0 10.0, columns 10.0 40.0, param 0.9 0.9 0.9 0.9

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "brigade/kernels/adafactor/adafactor_cuda.h"
#include "brigade/kernels/adafactor/adafactor_parameters.h"

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
    double workspace[bk::AdafactorWorkspaceSize(2, 2)];
    float param[4], grad[4], factors[4], scales[bk::kAdafactorNumbers + 4];
  };
  Memory host = {{}, {1, 1, 1, 1}, {4, 8, 2, 4}, {}, {}};
  Memory* device = nullptr;
  Check(cudaMalloc(reinterpret_cast<void**>(&device), sizeof(Memory)));
  Check(cudaMemcpy(device, &host, sizeof(Memory), cudaMemcpyHostToDevice));

  const bk::AdafactorGroup group;
  bk::AdafactorSettings settings;
  settings.scale_parameter = false;
  settings.relative_step = false;
  const float lr = 0.1f;
  const bk::OneStep step = {/*step=*/1, &lr, /*grad_multiplier=*/1.0f};
  const bk::AdafactorParameters parameters = bk::MakeAdafactorParameters(&group, 1, settings, step);
  const bk::AdafactorTensor tensor = {/*param=*/nullptr, device->grad,
                                      device->factors,   device->scales,
                                      device->workspace, /*rows=*/2,
                                      /*columns=*/2,     /*group=*/0};
  Check(bk::LaunchAdafactorFactors<float>(&tensor, 1, parameters, /*stream=*/nullptr));
  const bk::AdafactorSegment segment = {device->param,
                                        /*m=*/nullptr,
                                        device->grad,
                                        /*param_copy=*/nullptr,
                                        /*size=*/4,
                                        device->scales,
                                        /*rows=*/2,
                                        /*columns=*/2,
                                        /*first=*/0,
                                        /*group=*/0};
  Check((bk::LaunchAdafactorParams<float, bk::NoCopy>(&segment, 1, parameters,
                                                      /*stream=*/nullptr)));
  Check(cudaMemcpy(&host, device, sizeof(Memory), cudaMemcpyDeviceToHost));
  std::printf("rows %.1f %.1f, columns %.1f %.1f, param %.1f %.1f %.1f %.1f\n", host.factors[0],
              host.factors[1], host.factors[2], host.factors[3], host.param[0], host.param[1],
              host.param[2], host.param[3]);
  Check(cudaFree(device));
}
