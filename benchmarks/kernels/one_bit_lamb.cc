// The passes of 1-bit LAMB around an exchange: own momentum to the wire, which reads the momentum
// and the gradient and writes the message; and new moments from the mean, which reads five arrays
// and writes two.

#include "brigade/kernels/one_bit_lamb/one_bit_lamb.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::NoCopy;

// LAMB's options of a step that `state` and `group_step` say.
struct Step {
  kernels::LambGroup group = {.weight_decay = 0.01};
  kernels::LambOptions options;
};

absl::Status FillStep(precision::DType grad_dtype, Bench& bench, Step& step) {
  BRIGADE_ASSIGN_OR_RETURN(auto state, bench.CreateCopy(OrdinaryState()));
  BRIGADE_ASSIGN_OR_RETURN(auto group_step, bench.CreateCopy(OrdinaryGroupStep()));
  step.options.grad_dtype = grad_dtype;
  step.options.groups = {&step.group, 1};
  step.options.state = state;
  step.options.group_steps = group_step;
  return absl::OkStatus();
}

// All tensors have the same numbers here.
absl::StatusOr<absl::Span<kernels::OneBitLambNumbers>> CreateNumbers(Bench& bench) {
  const kernels::OneBitLambNumbers numbers = {.ratio = 1.0f, .scale = 2.0f, .factor = 1.0f};
  BRIGADE_ASSIGN_OR_RETURN(auto array, bench.CreateCopy(numbers));
  return absl::Span<kernels::OneBitLambNumbers>(array, 1);
}

template <typename Grad>
absl::Status MeasureSend(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t extent = list.extent();
  BRIGADE_ASSIGN_OR_RETURN(auto m, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto grad, bench.CreateArray<Grad>(extent, 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto message, bench.CreateZeros<float>(extent));
  BRIGADE_ASSIGN_OR_RETURN(auto numbers, CreateNumbers(bench));
  Step step;
  BRIGADE_RETURN_IF_ERROR(FillStep(precision::kDType<Grad>, bench, step));
  const auto send = [&](const TensorList& tensors) -> Work {
    const auto m_at = tensors.Offsets(0), grad_at = tensors.Offsets(1),
               message_at = tensors.Offsets(2);
    std::vector<kernels::OneBitLambMessage> messages;
    for (size_t i = 0; i < tensors.sizes().size(); ++i) {
      messages.push_back(
          {m + m_at[i], grad + grad_at[i], message + message_at[i], tensors.sizes()[i], 0, 0});
    }
    return [&step, messages, numbers](device::Stream& stream) {
      return kernels::OneBitLambSend(messages, step.options, numbers, stream);
    };
  };
  // The momentum to the message, and the gradient read by itself.
  std::vector<Work> ceilings;
  const Work read = ReadCeilings(grad, what.elements * static_cast<int64_t>(sizeof(Grad)))[1];
  for (const Work& transfer : TransferCeilings(m, message, what.elements)) {
    ceilings.push_back(InTurn({transfer, read}));
  }
  Contest contest = {
      .bytes = what.elements * static_cast<int64_t>(2 * sizeof(float) + sizeof(Grad)),
      .kernel = send(list),
      .ceilings = std::move(ceilings)};
  if (what.tensors > 1) contest.flat = send(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

absl::Status MeasureMoments(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t extent = list.extent();
  BRIGADE_ASSIGN_OR_RETURN(auto param, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto m, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto v, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto fresh, bench.CreateZeros<float>(extent));
  BRIGADE_ASSIGN_OR_RETURN(auto mean, bench.CreateArray<float>(extent, 1.0f));
  const int64_t tiles = extent / kernels::kLambTile + list.sizes().size() + 1;
  BRIGADE_ASSIGN_OR_RETURN(auto sums, bench.CreateZeros<kernels::OneBitLambSums>(tiles));
  Step step;
  BRIGADE_RETURN_IF_ERROR(FillStep(precision::DType::kFloat32, bench, step));
  const auto moments = [&](const TensorList& tensors) -> Work {
    const auto at = tensors.Offsets(0);
    std::vector<kernels::OneBitLambSegment> segments;
    int64_t tile = 0;
    for (size_t i = 0; i < tensors.sizes().size(); ++i) {
      const int64_t size = tensors.sizes()[i];
      segments.push_back(
          {param + at[i], m + at[i], v + at[i], fresh + at[i], mean + at[i], size, 0, 0, tile});
      tile += (size + kernels::kLambTile - 1) / kernels::kLambTile;
    }
    const absl::Span<kernels::OneBitLambSums> to = {sums, static_cast<size_t>(tiles)};
    return [&step, segments, to](device::Stream& stream) {
      return kernels::OneBitLambMoments(segments, step.options, to, stream);
    };
  };
  const int64_t bytes = what.elements * static_cast<int64_t>(sizeof(float));
  Contest contest = {.bytes = 7 * bytes,
                     .kernel = moments(list),
                     .ceilings = {InTurn(
                         {UpdateCeiling<float, NoCopy, 2>({m, fresh}, mean, nullptr, what.elements),
                          ReadCeilings(param, bytes)[1], ReadCeilings(v, bytes)[1]})}};
  if (what.tensors > 1) contest.flat = moments(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename Grad>
absl::Status RegisterSend() {
  return RegisterCases(absl::StrCat("one_bit_lamb_send/grad:", kTypeName<Grad>),
                       {.bytes_per_element = 2 * sizeof(float) + sizeof(Grad)}, MeasureSend<Grad>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = RegisterSend<float>();
  status.Update(RegisterSend<precision::BFloat16>());
  status.Update(RegisterCases("one_bit_lamb_moments", {.bytes_per_element = 5 * sizeof(float)},
                              MeasureMoments));
  return status;
}

}  // namespace brigade::benchmarks
