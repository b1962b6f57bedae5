// Flatten: tensors into a flat buffer, copied (bf16) or added in another type (bf16 to fp32).

#include "brigade/kernels/flatten/flatten.h"

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

using kernels::FlatSlot;
using precision::BFloat16;

std::vector<FlatSlot> Slots(const TensorList& list, BFloat16* tensors) {
  const auto from = list.Offsets(0), to = list.Offsets(1);
  std::vector<FlatSlot> slots;
  for (size_t i = 0; i < list.sizes().size(); ++i) {
    slots.push_back({tensors + from[i], list.sizes()[i], to[i]});
  }
  return slots;
}

// An fp32 flat buffer accumulates, a bf16 flat buffer takes a copy.
template <typename Place>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  constexpr bool kAccumulate = std::is_same_v<Place, float>;
  const TensorList list = what.list();
  BRIGADE_ASSIGN_OR_RETURN(auto tensors, bench.CreateArray<BFloat16>(list.extent(), 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto places, bench.CreateZeros<Place>(list.extent()));
  const kernels::FlattenOptions options = {.tensor_dtype = precision::kDType<BFloat16>,
                                           .accumulate = kAccumulate};
  const kernels::FlatBuffer flat = {places, list.extent(), precision::kDType<Place>};
  const auto flatten = [&](const TensorList& cut) -> Work {
    return [=, slots = Slots(cut, tensors)](device::Stream& stream) {
      return kernels::Flatten(slots, options, flat, stream);
    };
  };
  Contest contest;
  contest.kernel = flatten(list);
  if constexpr (kAccumulate) {
    contest.bytes = what.elements * static_cast<int64_t>(sizeof(BFloat16) + 2 * sizeof(Place));
    contest.ceilings = {AccumulateCeiling<BFloat16>(tensors, places, what.elements)};
  } else {
    contest.bytes = what.elements * static_cast<int64_t>(sizeof(BFloat16) + sizeof(Place));
    contest.ceilings = TransferCeilings<BFloat16, Place>(tensors, places, what.elements);
  }
  if (what.tensors > 1) contest.flat = flatten(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename Place>
absl::Status Register(absl::string_view name) {
  return RegisterCases(absl::StrCat("flatten/", name),
                       {.bytes_per_element = sizeof(BFloat16) + sizeof(Place)}, Measure<Place>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register<BFloat16>("copy:bf16");
  status.Update(Register<float>("add:bf16/to:fp32"));
  return status;
}

}  // namespace brigade::benchmarks
