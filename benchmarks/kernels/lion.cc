// Lion: reads param, m and the gradient, writes param and m.

#include "brigade/kernels/lion/lion.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::LionSegment;
using kernels::NoCopy;

template <typename Grad>
std::vector<LionSegment> Segments(const TensorList& list, float* param, float* moment,
                                  const Grad* grad) {
  const auto p = list.Offsets(0), m = list.Offsets(1), g = list.Offsets(2);
  std::vector<LionSegment> segments;
  for (size_t i = 0; i < list.sizes().size(); ++i) {
    segments.push_back({param + p[i], moment + m[i], grad + g[i], nullptr, list.sizes()[i], 0});
  }
  return segments;
}

template <typename Grad>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t extent = list.extent();
  BRIGADE_ASSIGN_OR_RETURN(auto param, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto moment, bench.CreateZeros<float>(extent));
  BRIGADE_ASSIGN_OR_RETURN(auto grad, bench.CreateArray<Grad>(extent, 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto step, bench.CreateCopy(OrdinaryState()));
  BRIGADE_ASSIGN_OR_RETURN(auto group_step, bench.CreateCopy(OrdinaryGroupStep()));

  const kernels::LionGroup group = {.weight_decay = 0.01};
  kernels::LionOptions options;
  options.grad_dtype = precision::kDType<Grad>;
  options.groups = {&group, 1};
  options.state = step;
  options.group_steps = group_step;
  const auto lion = [&](const TensorList& tensors) -> Work {
    return [&options, segments = Segments<Grad>(tensors, param, moment, grad)](
               device::Stream& stream) { return kernels::Lion(segments, options, stream); };
  };
  Contest contest = {
      .bytes = what.elements * static_cast<int64_t>(2 * 2 * sizeof(float) + sizeof(Grad)),
      .kernel = lion(list),
      .ceilings = {UpdateCeiling<Grad, NoCopy, 2>({param, moment}, grad, nullptr, what.elements)}};
  if (what.tensors > 1) contest.flat = lion(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename Grad>
absl::Status Register() {
  return RegisterCases(absl::StrCat("lion/grad:", kTypeName<Grad>),
                       {.bytes_per_element = 2 * sizeof(float) + sizeof(Grad)}, Measure<Grad>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register<float>();
  status.Update(Register<precision::BFloat16>());
  return status;
}

}  // namespace brigade::benchmarks
