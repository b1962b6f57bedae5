// Arrays to messages of int4 codes with error feedback: reads array and error, writes error and
// message.

#include "brigade/kernels/loco_quant/loco_quant.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::kLocoErrors;
using kernels::LocoSegment;
using kernels::QuantFormat;
using precision::BFloat16;

// Of all messages of a list.
int64_t Bytes(const TensorList& list, QuantFormat format) {
  int64_t bytes = 0;
  for (const int64_t size : list.sizes()) bytes += kernels::QuantBytes(size, format);
  return bytes;
}

// What the memory allows: array to message, and the errors in place.
template <int kLines>
std::vector<Work> Ceilings(const void* array, void* message, void* error, int64_t messages,
                           int64_t errors) {
  std::vector<Work> ceilings;
  const auto first = LineCeilings<kLines, 1>(array, message, messages);
  const auto second = LineCeilings<1, 1>(error, error, errors);
  for (size_t i = 0; i < first.size(); ++i) {
    // Lines that were read are written where they are, in the caches: second[0].
    ceilings.push_back([one = first[i], two = second[0]](device::Stream& stream) {
      absl::Status status = one(stream);
      status.Update(two(stream));
      return status;
    });
  }
  return ceilings;
}

template <typename T, QuantFormat kFormat>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t message_bytes = Bytes(list, kFormat), error_bytes = Bytes(list, kLocoErrors);
  BRIGADE_ASSIGN_OR_RETURN(auto array, bench.CreateArray<T>(list.extent(), 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto messages, bench.CreateZeros<uint8_t>(message_bytes));
  BRIGADE_ASSIGN_OR_RETURN(auto errors, bench.CreateZeros<uint8_t>(error_bytes));
  const kernels::LocoQuantOptions options = {precision::kDType<T>, kFormat, {}};
  const auto quantize = [&](const TensorList& tensors) -> Work {
    const auto at = tensors.Offsets(0);
    std::vector<LocoSegment> segments;
    uint8_t* message = messages;
    uint8_t* error = errors;
    for (size_t i = 0; i < at.size(); ++i) {
      const int64_t size = tensors.sizes()[i];
      segments.push_back({array + at[i], error, message, size});
      message += kernels::QuantBytes(size, kFormat);
      error += kernels::QuantBytes(size, kLocoErrors);
    }
    return [=](device::Stream& stream) { return kernels::LocoQuantize(segments, options, stream); };
  };
  constexpr int64_t kBlockBytes = kernels::QuantBlockBytes(kFormat);
  constexpr int kLines = static_cast<int>(sizeof(T) * kernels::kQuantBlock / kBlockBytes);
  const int64_t blocks = what.elements / kernels::kQuantBlock;
  Contest contest = {
      .bytes = what.elements * static_cast<int64_t>(sizeof(T)) + message_bytes + 2 * error_bytes,
      .kernel = quantize(list),
      .ceilings = Ceilings<kLines>(array, messages, errors, blocks * kBlockBytes / 64,
                                   blocks * kernels::kQuantBlock / 64)};
  if (what.tensors > 1) contest.flat = quantize(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

template <typename T>
absl::Status Register() {
  return RegisterCases(absl::StrCat("loco_quant/from:", kTypeName<T>, "/to:int4"),
                       {.bytes_per_element = sizeof(T) + 3}, Measure<T, QuantFormat::kInt4>);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status = Register<float>();
  status.Update(Register<BFloat16>());
  return status;
}

}  // namespace brigade::benchmarks
