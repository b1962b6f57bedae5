// AdamW: reads param, m, v and the gradient, writes param, m, v and the copy.

#include "brigade/kernels/adam/adam.h"

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

using kernels::AdamSegment;
using kernels::NoCopy;
using precision::BFloat16;
using precision::Half;

template <typename Grad, typename Copy>
constexpr int64_t kBytesHeld = 3 * sizeof(float) + sizeof(Grad) + kBytesOf<Copy>;

template <typename Grad, typename Copy>
constexpr int64_t kBytesMoved = 2 * 3 * sizeof(float) + sizeof(Grad) + kBytesOf<Copy>;

template <typename Grad, typename Copy>
struct Arrays {
  float *param, *m, *v;
  const Grad* grad;
  Copy* copy;

  std::vector<AdamSegment> Segments(const TensorList& list) const {
    const auto p = list.Offsets(0), m_at = list.Offsets(1), v_at = list.Offsets(2);
    const auto g = list.Offsets(3), c = list.Offsets(4);
    std::vector<AdamSegment> segments;
    for (size_t i = 0; i < list.sizes().size(); ++i) {
      segments.push_back({param + p[i], m + m_at[i], v + v_at[i], grad + g[i],
                          copy == nullptr ? nullptr : copy + c[i], list.sizes()[i], 0});
    }
    return segments;
  }
};

template <typename Grad, typename Copy>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t extent = list.extent();
  BRIGADE_ASSIGN_OR_RETURN(auto param, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto m, bench.CreateZeros<float>(extent));
  BRIGADE_ASSIGN_OR_RETURN(auto v, bench.CreateZeros<float>(extent));
  BRIGADE_ASSIGN_OR_RETURN(auto grad, bench.CreateArray<Grad>(extent, 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto copy, CreateCopyArray<Copy>(bench, extent));
  BRIGADE_ASSIGN_OR_RETURN(auto step, bench.CreateCopy(OrdinaryState()));
  BRIGADE_ASSIGN_OR_RETURN(auto group_step, bench.CreateCopy(OrdinaryGroupStep()));

  const kernels::AdamGroup group = {.weight_decay = 0.01};
  kernels::AdamOptions options;
  options.grad_dtype = precision::kDType<Grad>;
  if constexpr (!std::is_same_v<Copy, NoCopy>) options.copy_dtype = precision::kDType<Copy>;
  options.groups = {&group, 1};
  options.state = step;
  options.group_steps = group_step;
  const auto adam = [&](const TensorList& tensors) -> Work {
    const Arrays<Grad, Copy> arrays = {param, m, v, grad, copy};
    return [&options, segments = arrays.Segments(tensors)](device::Stream& stream) {
      return kernels::Adam(segments, options, stream);
    };
  };
  Contest contest = {
      .bytes = what.elements * kBytesMoved<Grad, Copy>,
      .kernel = adam(list),
      .ceilings = {UpdateCeiling<Grad, Copy, 3>({param, m, v}, grad, copy, what.elements)}};
  if (what.tensors > 1) contest.flat = adam(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename Grad, typename Copy>
absl::Status Register() {
  return RegisterCases(absl::StrCat("adam/grad:", kTypeName<Grad>, "/copy:", kTypeName<Copy>),
                       {.bytes_per_element = kBytesHeld<Grad, Copy>}, Measure<Grad, Copy>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register<float, NoCopy>();
  status.Update(Register<BFloat16, BFloat16>());
  status.Update(Register<float, BFloat16>());
  status.Update(Register<Half, Half>());
  return status;
}

}  // namespace brigade::benchmarks
