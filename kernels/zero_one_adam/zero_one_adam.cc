#include "brigade/kernels/zero_one_adam/zero_one_adam.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/internal/enqueue_list.h"
#include "brigade/kernels/list_arguments.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_cpu.h"

#if BRIGADE_CUDA
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam_cuda.h"
#endif

namespace brigade::kernels {
namespace {

template <typename Operation>
absl::Status EnqueueElements(const char* name, const ListArguments& arguments,
                             absl::Span<const typename Operation::Segment> segments,
                             const Operation& operation, device::Stream& stream) {
  return EnqueueList(
      {name, arguments.accesses()}, segments, kCpuTile, stream,
      [operation](auto plan, device::ThreadPool& pool) {
        ForEachRange(plan, kCpuTile, pool, [&](const auto& s, int64_t begin, int64_t end, int64_t) {
          ZeroOneElementsRange(operation, s, begin, end);
        });
      },
      [&](auto cuda_stream) {
        return LaunchZeroOneElements(segments.data(), static_cast<int64_t>(segments.size()),
                                     operation, cuda_stream);
      });
}

}  // namespace

absl::Status ZeroOneAdamMask(absl::Span<const ZeroOneMask> segments, device::Stream& stream) {
  constexpr char kName[] = "zero_one_adam_mask";
  ListArguments arguments(
      kName, {{"second_moment", sizeof(float), false}, {"gradient", sizeof(float), true}}, stream);
  for (size_t i = 0; i < segments.size(); ++i) {
    const ZeroOneMask& s = segments[i];
    BRIGADE_RETURN_IF_ERROR(
        arguments.Add(static_cast<int64_t>(i), s.size, {s.second_moment, s.gradient}));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  return EnqueueElements(kName, arguments, segments, ZeroOneMaskOperation(), stream);
}

absl::Status ZeroOneAdamReceive(absl::Span<const ZeroOneMessage> messages,
                                absl::Span<const ZeroOneNumbers> numbers, device::Stream& stream) {
  constexpr char kName[] = "zero_one_adam_receive";
  ListArguments arguments(kName, {{"message", sizeof(float), true}}, stream);
  const auto groups = static_cast<int64_t>(numbers.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    const ZeroOneMessage& s = messages[i];
    BRIGADE_RETURN_IF_ERROR(arguments.Add(static_cast<int64_t>(i), s.size, {s.message}));
    if (s.group >= 0 && s.group < groups) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": group of segment ", i, " is ", s.group, ", there are ", groups));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("numbers", numbers.data(), groups));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  return EnqueueElements(kName, arguments, messages, ZeroOneReceiveOperation{numbers.data()},
                         stream);
}

absl::Status ZeroOneAdamTake(absl::Span<const ZeroOneCopy> copies, const StepState* state,
                             device::Stream& stream) {
  constexpr char kName[] = "zero_one_adam_take";
  ListArguments arguments(
      kName, {{"source", sizeof(float), false}, {"target", sizeof(float), true}}, stream);
  for (size_t i = 0; i < copies.size(); ++i) {
    const ZeroOneCopy& s = copies[i];
    const auto index = static_cast<int64_t>(i);
    constexpr int kSource = 0, kTarget = 1;
    if (s.source != nullptr) {
      BRIGADE_RETURN_IF_ERROR(arguments.AddArray(kSource, index, s.source, s.size));
    }
    BRIGADE_RETURN_IF_ERROR(arguments.AddArray(kTarget, index, s.target, s.size));
  }
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("state", state, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  return EnqueueElements(kName, arguments, copies, ZeroOneTakeOperation{state}, stream);
}

absl::Status ZeroOneAdamRates(const ZeroOneRates& rates, device::Stream& stream) {
  static constexpr char kName[] = "zero_one_adam_rates";
  ListArguments arguments(kName, {}, stream);
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("state", rates.state, 1));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("group_steps", rates.group_steps, rates.groups));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("betas", rates.betas, 2 * int64_t{rates.groups}));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("numbers", rates.numbers, rates.groups));
  BRIGADE_RETURN_IF_ERROR(arguments.AddOperand("meeting", rates.meeting, rates.groups));
  BRIGADE_RETURN_IF_ERROR(arguments.CheckOverlap());
  const device::Operation operation = {kName, arguments.accesses()};
#if BRIGADE_CUDA
  if (stream.device().kind == device::DeviceKind::kCuda) {
    return stream.Launch(operation, [&](void* cuda_stream) {
      return device::CudaStatus(LaunchZeroOneRates(rates, static_cast<cudaStream_t>(cuda_stream)),
                                kName);
    });
  }
#endif
  return stream.Enqueue(operation, [rates](device::ThreadPool&) {
    const StepError error = CountRates(rates);
    if (error == StepError::kNone) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(kName, ": ", error == StepError::kStateNotFilled ? "state" : "group_steps",
                     " ", Describe(error), "; StepControl writes it"));
  });
}

}  // namespace brigade::kernels
