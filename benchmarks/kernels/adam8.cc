// AdamW with moments of 8 bits: reads param, codes, scales and the gradient, writes param, codes,
// scales and the copy.

#include "brigade/kernels/adam8/adam8.h"

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

using kernels::Adam8Segment;
using kernels::NoCopy;
using precision::BFloat16;

// Two moments, without the scales.
template <typename Grad, typename Copy>
constexpr int64_t kBytesHeld = sizeof(float) + 2 + sizeof(Grad) + kBytesOf<Copy>;

template <typename Grad, typename Copy>
constexpr int64_t kBytesMoved = 2 * (sizeof(float) + 2) + sizeof(Grad) + kBytesOf<Copy>;

template <typename Grad, typename Copy>
struct Arrays {
  float *param, *m_scale, *v_scale;
  uint8_t *m, *v;
  const Grad* grad;
  Copy* copy;

  std::vector<Adam8Segment> Segments(const TensorList& list) const {
    const auto p = list.Offsets(0), m_at = list.Offsets(1), v_at = list.Offsets(2);
    const auto g = list.Offsets(3), c = list.Offsets(4);
    std::vector<Adam8Segment> segments;
    int64_t blocks = 0;
    for (size_t i = 0; i < list.sizes().size(); ++i) {
      const int64_t size = list.sizes()[i];
      segments.push_back({param + p[i], m + m_at[i], v + v_at[i], m_scale + blocks,
                          v_scale + blocks, grad + g[i], copy == nullptr ? nullptr : copy + c[i],
                          size, 0});
      blocks += kernels::MomentBlocks(size);
    }
    return segments;
  }
};

template <typename Grad, typename Copy>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t extent = list.extent();
  const int64_t blocks = kernels::MomentBlocks(extent) + what.tensors;
  BRIGADE_ASSIGN_OR_RETURN(auto param, bench.CreateArray<float>(extent, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto m_scale, bench.CreateZeros<float>(blocks));
  BRIGADE_ASSIGN_OR_RETURN(auto v_scale, bench.CreateZeros<float>(blocks));
  BRIGADE_ASSIGN_OR_RETURN(auto m, bench.CreateZeros<uint8_t>(extent));
  BRIGADE_ASSIGN_OR_RETURN(auto v, bench.CreateZeros<uint8_t>(extent));
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
  const auto adam8 = [&](const TensorList& tensors) -> Work {
    const Arrays<Grad, Copy> arrays = {param, m_scale, v_scale, m, v, grad, copy};
    return [&options, segments = arrays.Segments(tensors)](device::Stream& stream) {
      return kernels::Adam8(segments, options, stream);
    };
  };
  Contest contest = {
      .bytes = what.elements * kBytesMoved<Grad, Copy>,
      .kernel = adam8(list),
      .ceilings = {CodedUpdateCeiling<Grad, Copy>(param, {m, v}, grad, copy, what.elements)}};
  if (what.tensors > 1) contest.flat = adam8(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename Grad, typename Copy>
absl::Status Register() {
  return RegisterCases(absl::StrCat("adam8/grad:", kTypeName<Grad>, "/copy:", kTypeName<Copy>),
                       {.bytes_per_element = kBytesHeld<Grad, Copy>}, Measure<Grad, Copy>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register<float, NoCopy>();
  status.Update(Register<BFloat16, BFloat16>());
  return status;
}

}  // namespace brigade::benchmarks
