// What 0/1 Adam does beside Adam: the mask of elements without a second moment, of which there are
// hardly any here, reads an array; the message back is an update in place; a moment that is taken
// is a copy.

#include "brigade/kernels/zero_one_adam/zero_one_adam.h"

#include <utility>
#include <vector>

#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// `make(offset, size)` is the segment of a tensor, and `call(segments, stream)` the kernel.
template <typename Make, typename Call>
absl::Status Compare(const Case& what, int64_t bytes, std::vector<Work> ceilings, const Make& make,
                     const Call& call, Bench& bench, benchmark::State& state) {
  const auto over = [&](const TensorList& tensors) -> Work {
    const auto at = tensors.Offsets(0);
    std::vector<decltype(make(int64_t{}, int64_t{}))> segments;
    for (size_t i = 0; i < at.size(); ++i) segments.push_back(make(at[i], tensors.sizes()[i]));
    return [segments, call](device::Stream& stream) { return call(segments, stream); };
  };
  Contest contest = {.bytes = bytes, .kernel = over(what.list()), .ceilings = std::move(ceilings)};
  if (what.tensors > 1) contest.flat = over(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

absl::Status MeasureMask(const Case& what, Bench& bench, benchmark::State& state) {
  const int64_t extent = what.list().extent(), bytes = what.elements * kFloatBytes;
  BRIGADE_ASSIGN_OR_RETURN(auto moment, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto gradient, bench.CreateArray<float>(extent, 1.0f));
  return Compare(
      what, bytes, ReadCeilings(moment, bytes),
      [=](int64_t at, int64_t size) {
        return kernels::ZeroOneMask{moment + at, gradient + at, size};
      },
      [](const auto& segments, device::Stream& stream) {
        return kernels::ZeroOneAdamMask(segments, stream);
      },
      bench, state);
}

absl::Status MeasureReceive(const Case& what, Bench& bench, benchmark::State& state) {
  BRIGADE_ASSIGN_OR_RETURN(auto message, bench.CreateArray<float>(what.list().extent(), 1.0f));
  kernels::ZeroOneNumbers factor = {};
  factor.inverse = 1.0f;
  BRIGADE_ASSIGN_OR_RETURN(auto numbers, bench.CreateCopy(factor));
  return Compare(
      what, 2 * what.elements * kFloatBytes, TransferCeilings(message, message, what.elements),
      [=](int64_t at, int64_t size) {
        return kernels::ZeroOneMessage{message + at, size, 0};
      },
      [=](const auto& segments, device::Stream& stream) {
        return kernels::ZeroOneAdamReceive(segments, {numbers, 1}, stream);
      },
      bench, state);
}

absl::Status MeasureTake(const Case& what, Bench& bench, benchmark::State& state) {
  const int64_t extent = what.list().extent();
  BRIGADE_ASSIGN_OR_RETURN(auto source, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto target, bench.CreateZeros<float>(extent));
  BRIGADE_ASSIGN_OR_RETURN(auto step, bench.CreateCopy(OrdinaryState()));
  return Compare(
      what, 2 * what.elements * kFloatBytes, TransferCeilings(source, target, what.elements),
      [=](int64_t at, int64_t size) {
        return kernels::ZeroOneCopy{source + at, target + at, size};
      },
      [=](const auto& segments, device::Stream& stream) {
        return kernels::ZeroOneAdamTake(segments, step, stream);
      },
      bench, state);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status =
      RegisterCases("zero_one_adam_mask", {.bytes_per_element = 2 * kFloatBytes}, MeasureMask);
  status.Update(
      RegisterCases("zero_one_adam_receive", {.bytes_per_element = kFloatBytes}, MeasureReceive));
  status.Update(
      RegisterCases("zero_one_adam_take", {.bytes_per_element = 2 * kFloatBytes}, MeasureTake));
  return status;
}

}  // namespace brigade::benchmarks
