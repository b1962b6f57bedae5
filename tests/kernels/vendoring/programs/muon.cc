#include "brigade/kernels/muon/muon_parameters.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/muon/muon_cuda.h"
#else
#include "brigade/kernels/muon/muon_cpu.h"
#endif

namespace brigade::vendored {

void RunMuon() {
  // Of 2002 elements, and one that is not touched.
  constexpr int64_t kRows = 22, kColumns = 91, kElements = kRows * kColumns;
  static_assert(kElements < kSize);
  Array<float> param(Values<float>(kSize, 1));
  Array<float> momentum(Values<float>(kSize, 2));
  Array<float> grad(Values<float>(kSize, 3));
  Array<float> update(std::vector<float>(kSize, 0.0f));
  Array<double> workspace(
      std::vector<double>(kernels::MuonWorkspaceSize(kRows, kColumns) / 2 + 1, 0.0));
  kernels::MuonMomentumSegment moments = {};
  moments.param = momentum.data();
  moments.update = update.data();
  moments.grad = grad.data();
  moments.size = kElements;
  const kernels::MuonMatrix matrix = {update.data(), reinterpret_cast<float*>(workspace.data()),
                                      kRows, kColumns};
  kernels::MuonParamSegment params = {};
  params.param = param.data();
  params.grad = update.data();
  params.size = kElements;
  params.rate = 1.0f;
  params.scale = kernels::MuonScaleOf(kernels::MuonScale::kMatchRmsAdamW, kRows, kColumns);

  const kernels::MuonGroup group;
  const float lr = 0.1f;
  kernels::OneStep step;
  step.lr = &lr;
  const kernels::MuonParameters parameters = MakeMuonParameters(&group, 1, step);
  const kernels::MuonCoefficients coefficients;
#ifdef ON_CUDA
  Check(kernels::LaunchMuonMomentum<float>(&moments, 1, parameters, nullptr));
  Check(kernels::LaunchMuonOrthogonalize(&matrix, 1, 5, coefficients, 1e-7, nullptr));
  Check(kernels::LaunchMuonParams<kernels::NoCopy>(&params, 1, parameters, nullptr));
#else
  auto error = kernels::MuonMomentumRange<float>(moments, parameters, 0, kElements);
  if (error != kernels::StepError::kNone) std::printf("%s\n", Describe(error));
  kernels::MuonOrthogonalizeMatrix(matrix, 5, coefficients, 1e-7);
  error = kernels::MuonParamRange<kernels::NoCopy>(params, parameters, 0, kElements);
  if (error != kernels::StepError::kNone) std::printf("%s\n", Describe(error));
#endif
  param.Print("muon param");
  momentum.Print("muon momentum");
  update.Print("muon update");
}

}  // namespace brigade::vendored
