// The thousandth of an array with the greatest magnitudes.

#include "brigade/kernels/top_k/top_k.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::TopKSegment;

template <typename T>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  BRIGADE_ASSIGN_OR_RETURN(auto array, bench.CreateArray<T>(list.extent(), 16.0f));
  const auto count_of = [](int64_t size) { return std::min(size, size / 1000 + 1); };
  std::vector<Work> work;
  int64_t selected = 0;
  for (const TensorList& cut : {list, TensorList::Flat(what.elements)}) {
    int64_t words = 0, count = 0;
    for (const int64_t size : cut.sizes()) {
      words += kernels::TopKWorkspaceSize(size);
      count += count_of(size);
    }
    BRIGADE_ASSIGN_OR_RETURN(auto values, bench.CreateZeros<T>(count));
    BRIGADE_ASSIGN_OR_RETURN(auto indices, bench.CreateZeros<int32_t>(count));
    BRIGADE_ASSIGN_OR_RETURN(auto workspace, bench.CreateZeros<uint32_t>(words));
    const auto at = cut.Offsets(0);
    std::vector<TopKSegment> segments;
    words = count = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      const int64_t size = cut.sizes()[i];
      segments.push_back({array + at[i], values + count, indices + count, workspace + words, size,
                          count_of(size)});
      words += kernels::TopKWorkspaceSize(size);
      count += count_of(size);
    }
    if (work.empty()) selected = count;
    work.push_back([=](device::Stream& stream) {
      return kernels::TopK(segments, {.dtype = precision::kDType<T>}, stream);
    });
  }
  // The array once: what no select can do without.
  constexpr int64_t kBytes = sizeof(T);
  Contest contest = {.bytes = what.elements * kBytes + selected * (kBytes + 4),
                     .kernel = work[0],
                     .ceilings = ReadCeilings(array, what.elements * kBytes)};
  if (what.tensors > 1) contest.flat = work[1];
  return Report(contest, bench, state);
}

template <typename T>
absl::Status Register() {
  return RegisterCases(absl::StrCat("top_k/from:", kTypeName<T>),
                       {.bytes_per_element = sizeof(T) + 1}, Measure<T>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register<float>();
  status.Update(Register<precision::BFloat16>());
  return status;
}

}  // namespace brigade::benchmarks
