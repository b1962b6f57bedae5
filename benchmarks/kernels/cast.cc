// Casts between the training formats: reads the source, writes the target.

#include "brigade/kernels/cast/cast.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::CastSegment;
using precision::BFloat16;
using precision::Half;

template <typename Source, typename Target>
std::vector<CastSegment> Segments(const TensorList& list, const Source* source, Target* target) {
  const auto from = list.Offsets(0), to = list.Offsets(1);
  std::vector<CastSegment> segments;
  for (size_t i = 0; i < list.sizes().size(); ++i) {
    segments.push_back({source + from[i], target + to[i], list.sizes()[i]});
  }
  return segments;
}

template <typename Source, typename Target>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  BRIGADE_ASSIGN_OR_RETURN(auto source, bench.CreateArray<Source>(list.extent(), 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto target, bench.CreateZeros<Target>(list.extent()));
  const kernels::CastOptions options = {.source_dtype = precision::kDType<Source>,
                                        .target_dtype = precision::kDType<Target>};
  const auto cast = [&](const TensorList& tensors) -> Work {
    return [options, segments = Segments<Source, Target>(tensors, source, target)](
               device::Stream& stream) { return kernels::Cast(segments, options, stream); };
  };
  Contest contest = {.bytes = what.elements * static_cast<int64_t>(sizeof(Source) + sizeof(Target)),
                     .kernel = cast(list),
                     .ceilings = TransferCeilings<Source, Target>(source, target, what.elements)};
  if (what.tensors > 1) contest.flat = cast(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename Source, typename Target>
absl::Status Register() {
  return RegisterCases(absl::StrCat("cast/from:", kTypeName<Source>, "/to:", kTypeName<Target>),
                       {.bytes_per_element = sizeof(Source) + sizeof(Target)},
                       Measure<Source, Target>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register<float, BFloat16>();
  status.Update(Register<BFloat16, float>());
  status.Update(Register<float, Half>());
  status.Update(Register<Half, float>());
  return status;
}

}  // namespace brigade::benchmarks
