#include "brigade/kernels/one_bit_lamb/one_bit_lamb_parameters.h"
#include "brigade/tests/kernels/vendoring/programs/program.h"
#ifdef ON_CUDA
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cuda.h"
#else
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_cpu.h"
#endif

namespace brigade::vendored {

void RunOneBitLamb() {
  Array<float> param(Values<float>(kSize, 1));
  Array<float> m(Values<float>(kSize, 2));
  Array<float> v(std::vector<float>(kSize, 0.5f));
  Array<float> fresh(std::vector<float>(kSize, 0.0f));
  Array<float> grad(Values<float>(kSize, 3));
  Array<float> message(std::vector<float>(kSize, 0.0f));
  Array<kernels::OneBitLambSums> sums(std::vector<kernels::OneBitLambSums>(1));
  const kernels::OneBitLambSegment segment = {
      param.data(), m.data(), v.data(), fresh.data(), message.data(), kSize, 0, 0, 0};
  const kernels::OneBitLambMessage own = {m.data(), grad.data(), message.data(), kSize, 0, 0};

  kernels::LambGroup group;
  group.weight_decay = 0.01;
  const float lr = 0.1f;
  kernels::OneStep step;
  step.lr = &lr;
  const kernels::LambParameters parameters = MakeLambParameters(&group, 1, step);
#ifdef ON_CUDA
  kernels::OneBitLambNumbers start = {};
  Array<kernels::OneBitLambNumbers> numbers(std::vector<kernels::OneBitLambNumbers>(1, start));
  Check(kernels::LaunchOneBitLambFreeze(&segment, 1, numbers.data(), sums.data(), nullptr));
  start.scale = 3.0f;
  Array<kernels::OneBitLambNumbers> frozen(std::vector<kernels::OneBitLambNumbers>(1, start));
  Check(kernels::LaunchOneBitLambSend<float>(&own, 1, parameters, frozen.data(), nullptr));
  Check(kernels::LaunchOneBitLambReceive(&own, 1, frozen.data(), nullptr));
  Check(kernels::LaunchOneBitLambMoments(&segment, 1, parameters, sums.data(), nullptr));
#else
  const float scale = 3.0f;
  kernels::OneBitLambFreezeRange(segment, 0, kSize, sums.data());
  auto error = kernels::OneBitLambSendRange<float>(own, parameters, scale, 0, kSize);
  kernels::OneBitLambReceiveRange(own, scale, 0, kSize);
  if (error == kernels::StepError::kNone) {
    error = kernels::OneBitLambMomentsRange(segment, parameters, 0, kSize, sums.data());
  }
  if (error != kernels::StepError::kNone) std::printf("%s\n", Describe(error));
#endif
  message.Print("one_bit_lamb message");
  m.Print("one_bit_lamb m");
  fresh.Print("one_bit_lamb fresh");
  sums.Print("one_bit_lamb sums");
}

}  // namespace brigade::vendored
