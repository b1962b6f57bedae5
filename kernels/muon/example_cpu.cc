// One step of Muon on the CPU, in the calling thread: of a matrix with singular values 30 and 4. It
// needs muon_cpu.cc and simd.cc with what they include, and nothing else.
//
// Prints: update 0.71 0.00 0.00 0.69, param 0.93 0.00 0.00 0.93

#include <cstdio>

#include "brigade/kernels/muon/muon_cpu.h"
#include "brigade/kernels/muon/muon_parameters.h"

namespace {

namespace bk = brigade::kernels;

// The parameters of a step, counted from 1.
bk::MuonParameters ParametersOf(int64_t step) {
  const bk::MuonGroup group = {/*momentum=*/0.95, /*nesterov=*/true, /*weight_decay=*/0.0};
  const float lr = 0.1f;
  return bk::MakeMuonParameters(&group, 1, bk::OneStep{step, &lr, /*grad_multiplier=*/1.0f});
}

// One step of a matrix, with a workspace of MuonWorkspaceSize(rows, columns), aligned to 8 bytes.
bk::StepError Step(float* param, float* momentum, float* update, const float* grad,
                   float* workspace, int64_t rows, int64_t columns, int64_t step) {
  const int64_t size = rows * columns;
  const bk::MuonParameters parameters = ParametersOf(step);
  const bk::MuonMomentumSegment moments = {momentum, update, grad, nullptr, size, /*group=*/0};
  const bk::MuonMatrix matrix = {update, workspace, rows, columns};
  const float scale = bk::MuonScaleOf(bk::MuonScale::kOriginal, rows, columns);
  const bk::MuonParamSegment params = {
      param, update, /*param_copy=*/nullptr, size, /*group=*/0, /*rate=*/1.0f, scale};
  // Any threads may take any parts of [0, size).
  const bk::StepError error = bk::MuonMomentumRange<float>(moments, parameters, 0, size);
  if (error != bk::StepError::kNone) return error;
  bk::MuonOrthogonalizeMatrix(matrix, /*steps=*/5, bk::MuonCoefficients(), /*eps=*/1e-7);
  return bk::MuonParamRange<bk::NoCopy>(params, parameters, 0, size);
}

}  // namespace

int main() {
  float param[4] = {1, 0, 0, 1}, momentum[4] = {}, update[4] = {};
  const float grad[4] = {30, 0, 0, 4};
  alignas(8) float workspace[bk::MuonWorkspaceSize(2, 2)];
  const bk::StepError error = Step(param, momentum, update, grad, workspace, 2, 2, /*step=*/1);
  if (error != bk::StepError::kNone) {
    std::printf("the step %s\n", bk::Describe(error));
    return 1;
  }
  std::printf("update %.2f %.2f %.2f %.2f, param %.2f %.2f %.2f %.2f\n", update[0], update[1],
              update[2], update[3], param[0], param[1], param[2], param[3]);
}
