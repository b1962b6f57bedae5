// One step of Adafactor on the CPU, in the calling thread: of a matrix whose gradient is a product
// of its rows' and columns' sizes, so that its update is 1 everywhere. It needs adafactor_cpu.cc
// and simd.cc with what they include, and nothing else.
//
// Prints: rows 40.0 10.0, columns 10.0 40.0, param 0.9 0.9 0.9 0.9

#include <cstdio>

#include "brigade/kernels/adafactor/adafactor_cpu.h"
#include "brigade/kernels/adafactor/adafactor_parameters.h"

int main() {
  namespace bk = brigade::kernels;
  float param[4] = {1, 1, 1, 1};
  const float grad[4] = {4, 8, 2, 4};

  const bk::AdafactorGroup group;
  bk::AdafactorSettings settings;
  settings.scale_parameter = false;
  settings.relative_step = false;
  const float lr = 0.1f;
  const bk::OneStep step = {/*step=*/1, &lr, /*grad_multiplier=*/1.0f};
  const bk::AdafactorParameters parameters = bk::MakeAdafactorParameters(&group, 1, settings, step);

  float factors[bk::AdafactorFactorCount(2, 2)] = {};
  float scales[bk::kAdafactorNumbers + bk::AdafactorFactorCount(2, 2)];
  double workspace[bk::AdafactorWorkspaceSize(2, 2)];
  const bk::AdafactorTensor tensor = {
      /*param=*/nullptr, grad,       factors,       scales,
      workspace,         /*rows=*/2, /*columns=*/2, /*group=*/0};
  bk::StepError error = bk::AdafactorFactorsOf<float>(tensor, parameters);

  const bk::AdafactorSegment segment = {param,
                                        /*m=*/nullptr,
                                        grad,
                                        /*param_copy=*/nullptr,
                                        /*size=*/4,
                                        scales,
                                        /*rows=*/2,
                                        /*columns=*/2,
                                        /*first=*/0,
                                        /*group=*/0};
  // Any threads may take any parts of [0, size).
  if (error == bk::StepError::kNone) {
    error = bk::AdafactorParamRange<float, bk::NoCopy>(segment, parameters, 0, 4);
  }
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("rows %.1f %.1f, columns %.1f %.1f, param %.1f %.1f %.1f %.1f\n", factors[0],
              factors[1], factors[2], factors[3], param[0], param[1], param[2], param[3]);
}
