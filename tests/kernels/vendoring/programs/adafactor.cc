#include "brigade/kernels/adafactor/adafactor_parameters.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/adafactor/adafactor_cuda.h"
#else
#include "brigade/kernels/adafactor/adafactor_cpu.h"
#endif

namespace brigade::vendored {

void RunAdafactor() {
  // Of 2002 elements, and one that is not touched.
  constexpr int64_t kRows = 22, kColumns = 91, kElements = kRows * kColumns;
  static_assert(kElements < kSize);
  Array<float> param(Values<float>(kSize, 1));
  Array<float> grad(Values<float>(kSize, 2));
  Array<float> factors(std::vector<float>(kSize, 1.0f));
  Array<float> scales(std::vector<float>(kSize, 0.0f));
  Array<double> workspace(
      std::vector<double>(kernels::AdafactorWorkspaceSize(kRows, kColumns), 0.0));
  kernels::AdafactorTensor tensor = {};
  tensor.param = param.data();
  tensor.grad = grad.data();
  tensor.factors = factors.data();
  tensor.scales = scales.data();
  tensor.workspace = workspace.data();
  tensor.rows = kRows;
  tensor.columns = kColumns;
  kernels::AdafactorSegment segment = {};
  segment.param = param.data();
  segment.grad = grad.data();
  segment.size = kElements;
  segment.scales = scales.data();
  segment.rows = kRows;
  segment.columns = kColumns;

  const kernels::AdafactorGroup group;
  const float lr = 0.1f;
  kernels::OneStep step;
  step.step = 3;
  step.lr = &lr;
  const kernels::AdafactorParameters parameters =
      MakeAdafactorParameters(&group, 1, kernels::AdafactorSettings(), step);
#ifdef ON_CUDA
  Check(kernels::LaunchAdafactorFactors<float>(&tensor, 1, parameters, nullptr));
  Check((kernels::LaunchAdafactorParams<float, kernels::NoCopy>(&segment, 1, parameters, nullptr)));
#else
  auto error = kernels::AdafactorFactorsOf<float>(tensor, parameters);
  if (error != kernels::StepError::kNone) std::printf("%s\n", Describe(error));
  error = kernels::AdafactorParamRange<float, kernels::NoCopy>(segment, parameters, 0, kElements);
  if (error != kernels::StepError::kNone) std::printf("%s\n", Describe(error));
#endif
  param.Print("adafactor param");
  factors.Print("adafactor factors");
  scales.Print("adafactor scales");
}

}  // namespace brigade::vendored
