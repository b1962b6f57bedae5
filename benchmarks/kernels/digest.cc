// Digests of tensors: reads them once.

#include "brigade/kernels/digest/digest.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::DigestSegment;

// Each tensor has a digest of its own.
template <typename T>
std::vector<DigestSegment> Segments(const TensorList& list, const T* array) {
  const auto at = list.Offsets(0);
  std::vector<DigestSegment> segments;
  for (size_t i = 0; i < at.size(); ++i) {
    const auto bytes = list.sizes()[i] * static_cast<int64_t>(sizeof(T));
    segments.push_back({array + at[i], bytes, 0, 0, 0, static_cast<int64_t>(i)});
  }
  return segments;
}

template <typename T>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const std::vector<TensorList> cuts = {list, TensorList::Flat(what.elements)};
  BRIGADE_ASSIGN_OR_RETURN(auto array, bench.CreateArray<T>(list.extent(), 16.0f));
  std::vector<Work> digests;
  for (const TensorList& cut : cuts) {
    const std::vector<DigestSegment> segments = Segments<T>(cut, array);
    const auto count = static_cast<int64_t>(segments.size());
    BRIGADE_ASSIGN_OR_RETURN(auto sums, bench.CreateZeros<kernels::TensorDigest>(count));
    digests.push_back([=](device::Stream& stream) {
      return kernels::Digest(segments, {sums, static_cast<size_t>(count)}, stream);
    });
  }
  const int64_t bytes = what.elements * static_cast<int64_t>(sizeof(T));
  return Report({.bytes = bytes,
                 .kernel = digests[0],
                 .ceilings = ReadCeilings(array, bytes),
                 .flat = what.tensors > 1 ? digests[1] : nullptr},
                bench, state);
}

template <typename T>
absl::Status Register() {
  return RegisterCases(absl::StrCat("digest/of:", kTypeName<T>), {.bytes_per_element = sizeof(T)},
                       Measure<T>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register<float>();
  status.Update(Register<precision::BFloat16>());
  return status;
}

}  // namespace brigade::benchmarks
