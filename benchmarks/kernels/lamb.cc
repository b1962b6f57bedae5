// LAMB: reads param, both moments and the gradient and writes the moments, then reads param and
// moments and writes param.

#include "brigade/kernels/lamb/lamb.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::LambSegment;
using kernels::NoCopy;

// What the memory allows: the streams of both passes. The reads of param, and of moments in the
// second pass, are updates here that write nothing else: no loop reads three arrays.
template <typename Grad>
Work TwoPasses(float* param, float* m, float* v, const Grad* grad, int64_t size) {
  const int64_t bytes = size * static_cast<int64_t>(sizeof(float));
  return InTurn({UpdateCeiling<Grad, NoCopy, 2>({m, v}, grad, nullptr, size),
                 ReadCeilings(param, bytes)[1], ReadCeilings(m, bytes)[1],
                 AccumulateCeiling<float>(v, param, size)});
}

template <typename Grad>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t extent = list.extent();
  BRIGADE_ASSIGN_OR_RETURN(auto param, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto m, bench.CreateZeros<float>(extent));
  BRIGADE_ASSIGN_OR_RETURN(auto v, bench.CreateZeros<float>(extent));
  BRIGADE_ASSIGN_OR_RETURN(auto grad, bench.CreateArray<Grad>(extent, 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto step, bench.CreateCopy(OrdinaryState()));
  BRIGADE_ASSIGN_OR_RETURN(auto group_step, bench.CreateCopy(OrdinaryGroupStep()));
  BRIGADE_ASSIGN_OR_RETURN(auto workspace, bench.CreateZeros<double>(2 * extent / 4096 + 20'000));
  const absl::Span<double> sums = {workspace, static_cast<size_t>(2 * extent / 4096 + 20'000)};

  const kernels::LambGroup group = {.weight_decay = 0.01};
  kernels::LambOptions options;
  options.grad_dtype = precision::kDType<Grad>;
  options.groups = {&group, 1};
  options.state = step;
  options.group_steps = group_step;
  const auto lamb = [&](const TensorList& tensors) -> Work {
    const auto p_at = tensors.Offsets(0), m_at = tensors.Offsets(1), v_at = tensors.Offsets(2),
               g_at = tensors.Offsets(3);
    std::vector<LambSegment> segments;
    for (size_t i = 0; i < tensors.sizes().size(); ++i) {
      segments.push_back({param + p_at[i], m + m_at[i], v + v_at[i], grad + g_at[i], nullptr,
                          tensors.sizes()[i], 0});
    }
    return [&options, segments, sums](device::Stream& stream) {
      return kernels::Lamb(segments, options, sums, stream);
    };
  };
  Contest contest = {
      .bytes = what.elements * static_cast<int64_t>(10 * sizeof(float) + sizeof(Grad)),
      .kernel = lamb(list),
      .ceilings = {TwoPasses<Grad>(param, m, v, grad, what.elements)}};
  if (what.tensors > 1) contest.flat = lamb(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename Grad>
absl::Status Register() {
  return RegisterCases(absl::StrCat("lamb/grad:", kTypeName<Grad>),
                       {.bytes_per_element = 3 * sizeof(float) + sizeof(Grad)}, Measure<Grad>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register<float>();
  status.Update(Register<precision::BFloat16>());
  return status;
}

}  // namespace brigade::benchmarks
