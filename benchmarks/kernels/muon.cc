// Muon's passes over memory: the momentum, which reads m and the gradient and writes m and the
// update; and parameters, which reads param and the update and writes param and the copy. The
// products between them stay in caches and have no ceiling of memory.

#include "brigade/kernels/muon/muon.h"

#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::MuonMomentumSegment;
using kernels::MuonParamSegment;
using kernels::NoCopy;
using precision::BFloat16;

const kernels::MuonGroup kGroup = {};

template <typename Grad>
absl::Status MeasureMomentum(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t extent = list.extent();
  BRIGADE_ASSIGN_OR_RETURN(auto momentum, bench.CreateZeros<float>(extent));
  BRIGADE_ASSIGN_OR_RETURN(auto update, bench.CreateZeros<float>(extent));
  BRIGADE_ASSIGN_OR_RETURN(auto grad, bench.CreateArray<Grad>(extent, 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto step, bench.CreateCopy(OrdinaryState()));
  BRIGADE_ASSIGN_OR_RETURN(auto group_step, bench.CreateCopy(OrdinaryGroupStep()));
  kernels::MuonOptions options;
  options.grad_dtype = precision::kDType<Grad>;
  options.groups = {&kGroup, 1};
  options.state = step;
  options.group_steps = group_step;
  const auto work = [&](const TensorList& tensors) -> Work {
    const auto m = tensors.Offsets(0), u = tensors.Offsets(1), g = tensors.Offsets(2);
    std::vector<MuonMomentumSegment> segments;
    for (size_t i = 0; i < tensors.sizes().size(); ++i) {
      segments.push_back(
          {momentum + m[i], update + u[i], grad + g[i], nullptr, tensors.sizes()[i], 0});
    }
    return [&options, segments = std::move(segments)](device::Stream& stream) {
      return kernels::MuonMomentum(segments, options, stream);
    };
  };
  Contest contest = {
      .bytes = what.elements * static_cast<int64_t>(2 * 2 * sizeof(float) + sizeof(Grad)),
      .kernel = work(list),
      .ceilings = {
          UpdateCeiling<Grad, NoCopy, 2>({momentum, update}, grad, nullptr, what.elements)}};
  if (what.tensors > 1) contest.flat = work(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename Copy>
absl::Status MeasureParams(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t extent = list.extent();
  BRIGADE_ASSIGN_OR_RETURN(auto param, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto update, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto copy, CreateCopyArray<Copy>(bench, extent));
  BRIGADE_ASSIGN_OR_RETURN(auto step, bench.CreateCopy(OrdinaryState()));
  BRIGADE_ASSIGN_OR_RETURN(auto group_step, bench.CreateCopy(OrdinaryGroupStep()));
  kernels::MuonOptions options;
  if constexpr (!std::is_same_v<Copy, NoCopy>) options.copy_dtype = precision::kDType<Copy>;
  options.groups = {&kGroup, 1};
  options.state = step;
  options.group_steps = group_step;
  Copy* const copies = copy;
  const auto work = [&](const TensorList& tensors) -> Work {
    const auto p = tensors.Offsets(0), u = tensors.Offsets(1), c = tensors.Offsets(2);
    std::vector<MuonParamSegment> segments;
    for (size_t i = 0; i < tensors.sizes().size(); ++i) {
      segments.push_back({param + p[i], update + u[i], copies == nullptr ? nullptr : copies + c[i],
                          tensors.sizes()[i], 0, 1.0f, 1.0f});
    }
    return [&options, segments = std::move(segments)](device::Stream& stream) {
      return kernels::MuonParams(segments, options, stream);
    };
  };
  const float* const read = update;
  Contest contest = {
      .bytes = what.elements * (3 * static_cast<int64_t>(sizeof(float)) + kBytesOf<Copy>),
      .kernel = work(list),
      .ceilings = {UpdateCeiling<float, Copy, 1>({param}, read, copies, what.elements)}};
  if (what.tensors > 1) contest.flat = work(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename Grad>
absl::Status RegisterMomentum() {
  return RegisterCases(absl::StrCat("muon_momentum/grad:", kTypeName<Grad>),
                       {.bytes_per_element = 2 * sizeof(float) + sizeof(Grad)},
                       MeasureMomentum<Grad>);
}
template <typename Copy>
absl::Status RegisterParams() {
  return RegisterCases(absl::StrCat("muon_params/copy:", kTypeName<Copy>),
                       {.bytes_per_element = 2 * sizeof(float) + kBytesOf<Copy>},
                       MeasureParams<Copy>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = RegisterMomentum<float>();
  status.Update(RegisterMomentum<BFloat16>());
  status.Update(RegisterParams<NoCopy>());
  status.Update(RegisterParams<BFloat16>());
  return status;
}

}  // namespace brigade::benchmarks
