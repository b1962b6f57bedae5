// Arrays to messages of int8 or int4 codes and back: reads the one, writes the other.

#include "brigade/kernels/block_quant/block_quant.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::DequantizeSegment;
using kernels::QuantFormat;
using kernels::QuantizeSegment;
using precision::BFloat16;

template <typename T>
std::vector<QuantizeSegment> Segments(const TensorList& list, const T* array, uint8_t* messages,
                                      QuantFormat format) {
  const auto at = list.Offsets(0);
  std::vector<QuantizeSegment> segments;
  for (size_t i = 0; i < list.sizes().size(); ++i) {
    segments.push_back({array + at[i], messages, list.sizes()[i]});
    messages += kernels::QuantBytes(list.sizes()[i], format);
  }
  return segments;
}

// Messages of as many bytes as those of the list need.
int64_t MessagesBytes(const TensorList& list, QuantFormat format) {
  int64_t bytes = 0;
  for (const int64_t size : list.sizes()) bytes += kernels::QuantBytes(size, format);
  return bytes;
}

template <typename T, QuantFormat kFormat, bool kBack>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t message_bytes = MessagesBytes(list, kFormat);
  BRIGADE_ASSIGN_OR_RETURN(auto array, bench.CreateArray<T>(list.extent(), 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto messages, bench.CreateZeros<uint8_t>(message_bytes));
  const kernels::BlockQuantOptions options = {precision::kDType<T>, kFormat};
  const auto run = [&](const TensorList& tensors) -> Work {
    const std::vector<QuantizeSegment> there = Segments(tensors, array, messages, kFormat);
    if constexpr (kBack) {
      std::vector<DequantizeSegment> back;
      for (const auto& s : there) back.push_back({s.message, const_cast<void*>(s.array), s.size});
      return [options, back](device::Stream& stream) {
        return kernels::BlockDequantize(back, options, stream);
      };
    } else {
      return [options, there](device::Stream& stream) {
        return kernels::BlockQuantize(there, options, stream);
      };
    }
  };
  // So that there is something to come back.
  BRIGADE_RETURN_IF_ERROR(
      kernels::BlockQuantize(Segments(list, array, messages, kFormat), options, bench.stream()));
  BRIGADE_RETURN_IF_ERROR(bench.stream().Synchronize());
  // Lines of the array for one of codes.
  constexpr int kLines =
      static_cast<int>(sizeof(T) * kernels::kQuantBlock / kernels::QuantBlockBytes(kFormat));
  const int64_t groups = what.elements * static_cast<int64_t>(sizeof(T)) / (64 * kLines);
  Contest contest = {.bytes = what.elements * static_cast<int64_t>(sizeof(T)) + message_bytes,
                     .kernel = run(list),
                     .ceilings = kBack ? LineCeilings<1, kLines>(messages, array, groups)
                                       : LineCeilings<kLines, 1>(array, messages, groups)};
  if (what.tensors > 1) contest.flat = run(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename T, QuantFormat kFormat>
absl::Status Register(absl::string_view format) {
  const CaseOptions options = {.bytes_per_element = sizeof(T) + 2};
  absl::Status status =
      RegisterCases(absl::StrCat("block_quant/from:", kTypeName<T>, "/to:", format), options,
                    Measure<T, kFormat, false>);
  status.Update(RegisterCases(absl::StrCat("block_quant/from:", format, "/to:", kTypeName<T>),
                              options, Measure<T, kFormat, true>));
  return status;
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register<float, QuantFormat::kInt8>("int8");
  status.Update(Register<BFloat16, QuantFormat::kInt8>("int8"));
  status.Update(Register<float, QuantFormat::kInt4>("int4"));
  status.Update(Register<BFloat16, QuantFormat::kInt4>("int4"));
  return status;
}

}  // namespace brigade::benchmarks
