#include <cstdlib>

#include "brigade/kernels/zero_one_adam/zero_one_adam_parameters.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/zero_one_adam/zero_one_adam_cuda.h"
#else
#include "brigade/kernels/zero_one_adam/zero_one_adam_cpu.h"
#endif

namespace brigade::vendored {
namespace {

template <typename Operation>
void Run(const Operation& operation, const typename Operation::Segment& segment) {
#ifdef ON_CUDA
  Check(kernels::LaunchZeroOneElements(&segment, 1, operation, nullptr));
#else
  kernels::ZeroOneElementsRange(operation, segment, 0, segment.size);
#endif
}

}  // namespace

void RunZeroOneAdam() {
  std::vector<float> moments = Values<float>(kSize, 1);
  for (size_t i = 0; i < moments.size(); i += 3) moments[i] = 0.0f;
  Array<float> second_moment(moments);
  Array<float> gradient(Values<float>(kSize, 2));
  Array<float> target(Values<float>(kSize, 3));
  kernels::StepState state = {};
  state.step = 1;
  state.grad_multiplier = 1.0f;
  kernels::GroupStep group = {};
  group.lr = 0.3f;
  group.inv_sqrt_correction = 1.0f;
  Array<kernels::StepState> states(std::vector<kernels::StepState>(1, state));
  Array<kernels::GroupStep> groups(std::vector<kernels::GroupStep>(1, group)),
      meeting(std::vector<kernels::GroupStep>(1));
  const kernels::AdamGroup adam = {0.9, 0.999, 1e-8, 0.0};
  std::vector<float> factors(2);
  kernels::FillZeroOneBetas(&adam, 1, factors.data());
  Array<float> betas(factors);
  Array<kernels::ZeroOneNumbers> numbers(std::vector<kernels::ZeroOneNumbers>(1));
  const kernels::ZeroOneRates rates = {kernels::ZeroOneCall::kMeet,
                                       1,
                                       states.data(),
                                       groups.data(),
                                       betas.data(),
                                       numbers.data(),
                                       meeting.data()};
#ifdef ON_CUDA
  Check(kernels::LaunchZeroOneRates(rates, nullptr));
#else
  if (kernels::CountRates(rates) != kernels::StepError::kNone) std::exit(1);
#endif
  Run(kernels::ZeroOneMaskOperation(), {second_moment.data(), gradient.data(), kSize});
  Run(kernels::ZeroOneReceiveOperation{numbers.data()}, {gradient.data(), kSize, 0});
  Run(kernels::ZeroOneTakeOperation{states.data()}, {gradient.data(), target.data(), kSize});
  gradient.Print("zero_one_adam gradient");
  target.Print("zero_one_adam target");
}

}  // namespace brigade::vendored
