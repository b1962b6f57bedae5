// One step of Muon on the CPU, in the calling thread: of a matrix with singular values 30 and 4. It
// needs muon_cpu.cc and simd.cc with what they include, and nothing else.
//
// Prints: update 0.71 0.00 0.00 0.69, param 0.93 0.00 0.00 0.93

#include <cstdio>

#include "brigade/kernels/muon/muon_cpu.h"
#include "brigade/kernels/muon/muon_parameters.h"

int main() {
  namespace bk = brigade::kernels;
  float param[4] = {1, 0, 0, 1}, momentum[4] = {}, update[4] = {};
  const float grad[4] = {30, 0, 0, 4};

  const bk::MuonGroup group = {/*momentum=*/0.95, /*nesterov=*/true, /*weight_decay=*/0.0};
  const float lr = 0.1f;
  const bk::OneStep step = {/*step=*/1, &lr, /*grad_multiplier=*/1.0f};
  const bk::MuonParameters parameters = bk::MakeMuonParameters(&group, 1, step);
  const bk::MuonMomentumSegment moments = {momentum, update,     grad, /*param_copy=*/nullptr,
                                           4,        /*group=*/0};
  // Any threads may take any parts of [0, size).
  bk::StepError error = bk::MuonMomentumRange<float>(moments, parameters, 0, 4);

  alignas(8) float workspace[bk::MuonWorkspaceSize(2, 2)];
  const bk::MuonMatrix matrix = {update, workspace, /*rows=*/2, /*columns=*/2};
  bk::MuonOrthogonalizeMatrix(matrix, /*steps=*/5, bk::MuonCoefficients(), /*eps=*/1e-7);

  const bk::MuonParamSegment params = {
      param,       update,        nullptr,
      4,
      /*group=*/0, /*rate=*/1.0f, bk::MuonScaleOf(bk::MuonScale::kOriginal, 2, 2)};
  if (error == bk::StepError::kNone) {
    error = bk::MuonParamRange<bk::NoCopy>(params, parameters, 0, 4);
  }
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("update %.2f %.2f %.2f %.2f, param %.2f %.2f %.2f %.2f\n", update[0], update[1],
              update[2], update[3], param[0], param[1], param[2], param[3]);
}
