// Adafactor: factors read the gradient and param for the sums of rows and columns, and the gradient
// again for that of updates; parameters read param and the gradient and write param and the copy.
// Tensors are matrices of 1024 columns; what is left of a row, and of shorter ones, is not there.

#include "brigade/kernels/adafactor/adafactor.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::AdafactorSegment;
using kernels::AdafactorTensor;
using kernels::NoCopy;
using precision::BFloat16;

const kernels::AdafactorGroup kGroup = {};

struct Shape {
  int64_t rows, columns;
};
Shape ShapeOf(int64_t size) {
  const int64_t columns = std::min<int64_t>(1024, size);
  return {size / columns, columns};
}

// How many factors, and how many doubles of workspace, the tensors of a list have.
struct Sizes {
  int64_t factors = 0, workspace = 0;
};
Sizes SizesOf(const TensorList& list) {
  Sizes sizes;
  for (const int64_t size : list.sizes()) {
    const auto [rows, columns] = ShapeOf(size);
    sizes.factors += kernels::kAdafactorNumbers + kernels::AdafactorFactorCount(rows, columns);
    sizes.workspace += kernels::AdafactorWorkspaceSize(rows, columns);
  }
  return sizes;
}
Sizes Largest(const Case& what) {
  const Sizes list = SizesOf(what.list()), flat = SizesOf(TensorList::Flat(what.elements));
  return {std::max(list.factors, flat.factors), std::max(list.workspace, flat.workspace)};
}

template <typename Grad>
absl::Status MeasureFactors(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t extent = list.extent();
  const Sizes sizes = Largest(what);
  BRIGADE_ASSIGN_OR_RETURN(auto param, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto grad, bench.CreateArray<Grad>(extent, 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto factors, bench.CreateZeros<float>(sizes.factors));
  BRIGADE_ASSIGN_OR_RETURN(auto scales, bench.CreateZeros<float>(sizes.factors));
  BRIGADE_ASSIGN_OR_RETURN(auto workspace, bench.CreateZeros<double>(sizes.workspace));
  BRIGADE_ASSIGN_OR_RETURN(auto step, bench.CreateCopy(OrdinaryState()));
  BRIGADE_ASSIGN_OR_RETURN(auto group_step, bench.CreateCopy(OrdinaryGroupStep()));
  kernels::AdafactorOptions options;
  options.grad_dtype = precision::kDType<Grad>;
  options.groups = {&kGroup, 1};
  options.state = step;
  options.group_steps = group_step;
  const auto work = [&](const TensorList& tensors) -> Work {
    const auto p = tensors.Offsets(0), g = tensors.Offsets(1);
    std::vector<AdafactorTensor> all;
    Sizes used;
    for (size_t i = 0; i < tensors.sizes().size(); ++i) {
      const auto [rows, columns] = ShapeOf(tensors.sizes()[i]);
      all.push_back({param + p[i], grad + g[i], factors + used.factors, scales + used.factors,
                     workspace + used.workspace, rows, columns, 0});
      used.factors += kernels::kAdafactorNumbers + kernels::AdafactorFactorCount(rows, columns);
      used.workspace += kernels::AdafactorWorkspaceSize(rows, columns);
    }
    return [&options, all = std::move(all)](device::Stream& stream) {
      return kernels::AdafactorFactors(all, options, stream);
    };
  };
  const auto grad_bytes = what.elements * static_cast<int64_t>(sizeof(Grad));
  const auto param_bytes = what.elements * static_cast<int64_t>(sizeof(float));
  Contest contest = {
      .bytes = param_bytes + 2 * grad_bytes,
      .kernel = work(list),
      .ceilings = {InTurn({ReadCeilings(param, param_bytes)[1], ReadCeilings(grad, grad_bytes)[1],
                           ReadCeilings(grad, grad_bytes)[1]})}};
  if (what.tensors > 1) contest.flat = work(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename Grad, typename Copy>
absl::Status MeasureParams(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t extent = list.extent();
  const Sizes sizes = Largest(what);
  BRIGADE_ASSIGN_OR_RETURN(auto param, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto grad, bench.CreateArray<Grad>(extent, 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto scales, bench.CreateZeros<float>(sizes.factors));
  BRIGADE_ASSIGN_OR_RETURN(auto copy, CreateCopyArray<Copy>(bench, extent));
  BRIGADE_ASSIGN_OR_RETURN(auto step, bench.CreateCopy(OrdinaryState()));
  BRIGADE_ASSIGN_OR_RETURN(auto group_step, bench.CreateCopy(OrdinaryGroupStep()));
  kernels::AdafactorOptions options;
  options.grad_dtype = precision::kDType<Grad>;
  if constexpr (!std::is_same_v<Copy, NoCopy>) options.copy_dtype = precision::kDType<Copy>;
  options.groups = {&kGroup, 1};
  options.state = step;
  options.group_steps = group_step;
  Copy* const copies = copy;
  const auto work = [&](const TensorList& tensors) -> Work {
    const auto p = tensors.Offsets(0), g = tensors.Offsets(1), c = tensors.Offsets(2);
    std::vector<AdafactorSegment> segments;
    int64_t used = 0;
    for (size_t i = 0; i < tensors.sizes().size(); ++i) {
      const auto [rows, columns] = ShapeOf(tensors.sizes()[i]);
      segments.push_back({param + p[i], nullptr, grad + g[i],
                          copies == nullptr ? nullptr : copies + c[i], rows * columns,
                          scales + used, rows, columns, 0, 0});
      used += kernels::kAdafactorNumbers + kernels::AdafactorFactorCount(rows, columns);
    }
    return [&options, segments = std::move(segments)](device::Stream& stream) {
      return kernels::AdafactorParams(segments, options, stream);
    };
  };
  const Grad* const read = grad;
  Contest contest = {
      .bytes =
          what.elements * static_cast<int64_t>(2 * sizeof(float) + sizeof(Grad) + kBytesOf<Copy>),
      .kernel = work(list),
      .ceilings = {UpdateCeiling<Grad, Copy, 1>({param}, read, copies, what.elements)}};
  if (what.tensors > 1) contest.flat = work(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename Grad>
absl::Status RegisterFactors() {
  return RegisterCases(absl::StrCat("adafactor_factors/grad:", kTypeName<Grad>),
                       {.bytes_per_element = sizeof(float) + sizeof(Grad) + 1},
                       MeasureFactors<Grad>);
}
template <typename Grad, typename Copy>
absl::Status RegisterParams() {
  return RegisterCases(
      absl::StrCat("adafactor_params/grad:", kTypeName<Grad>, "/copy:", kTypeName<Copy>),
      {.bytes_per_element = sizeof(float) + sizeof(Grad) + kBytesOf<Copy> + 1},
      MeasureParams<Grad, Copy>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = RegisterFactors<float>();
  status.Update(RegisterFactors<BFloat16>());
  status.Update(RegisterParams<float, NoCopy>());
  status.Update(RegisterParams<BFloat16, BFloat16>());
  return status;
}

}  // namespace brigade::benchmarks
