// The gradients' sum of squares and finiteness: reads them once.

#include "brigade/kernels/grad_check/grad_check.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::GradSegment;

template <typename Grad>
std::vector<GradSegment> Segments(const TensorList& list, const Grad* grad) {
  const auto at = list.Offsets(0);
  std::vector<GradSegment> segments;
  for (size_t i = 0; i < at.size(); ++i) segments.push_back({grad + at[i], list.sizes()[i]});
  return segments;
}

template <typename Grad>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const std::vector<TensorList> cuts = {list, TensorList::Flat(what.elements)};
  BRIGADE_ASSIGN_OR_RETURN(auto grad, bench.CreateArray<Grad>(list.extent(), 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto stats, bench.CreateZeros<kernels::GradStats>(1));
  std::vector<Work> checks;
  for (const TensorList& cut : cuts) {
    const std::vector<GradSegment> segments = Segments<Grad>(cut, grad);
    const int64_t tiles = kernels::GradCheckWorkspaceSize(segments);
    BRIGADE_ASSIGN_OR_RETURN(auto workspace, bench.CreateZeros<double>(tiles));
    checks.push_back([=](device::Stream& stream) {
      return kernels::GradCheck(segments, precision::kDType<Grad>,
                                {workspace, static_cast<size_t>(tiles)}, stats, stream);
    });
  }
  const int64_t bytes = what.elements * static_cast<int64_t>(sizeof(Grad));
  return Report({.bytes = bytes,
                 .kernel = checks[0],
                 .ceilings = ReadCeilings(grad, bytes),
                 .flat = what.tensors > 1 ? checks[1] : nullptr},
                bench, state);
}

template <typename Grad>
absl::Status Register() {
  return RegisterCases(absl::StrCat("grad_check/grad:", kTypeName<Grad>),
                       {.bytes_per_element = sizeof(Grad)}, Measure<Grad>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register<float>();
  status.Update(Register<precision::BFloat16>());
  status.Update(Register<precision::Half>());
  return status;
}

}  // namespace brigade::benchmarks
