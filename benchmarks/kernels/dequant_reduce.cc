// The sum of eight ranks' messages of codes, to fp32 or quantised again: reads the ones, writes the
// other.

#include "brigade/kernels/dequant_reduce/dequant_reduce.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::DequantReduceSegment;
using kernels::QuantFormat;

constexpr int64_t kRanks = 8;

// Of all messages of a rank.
int64_t Bytes(const TensorList& list, QuantFormat format) {
  int64_t bytes = 0;
  for (const int64_t size : list.sizes()) bytes += kernels::QuantBytes(size, format);
  return bytes;
}

// kLines: lines of codes read for kTargetLines of the target written.
template <QuantFormat kFormat, bool kAgain, int kLines, int kTargetLines>
absl::Status Measure(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t stride = Bytes(list, kFormat);
  const int64_t target_bytes =
      kAgain ? Bytes(list, kFormat) : list.extent() * static_cast<int64_t>(sizeof(float));
  BRIGADE_ASSIGN_OR_RETURN(auto messages, bench.CreateZeros<uint8_t>(kRanks * stride));
  BRIGADE_ASSIGN_OR_RETURN(auto target, bench.CreateZeros<uint8_t>(target_bytes));
  kernels::DequantReduceOptions options = {kFormat, {kRanks, stride, 1.0f / kRanks}};
  if (kAgain) options.target_format = kFormat;
  const auto reduce = [&](const TensorList& tensors) -> Work {
    const auto at = tensors.Offsets(0);
    std::vector<DequantReduceSegment> segments;
    int64_t message = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      const int64_t to = kAgain ? message : at[i] * static_cast<int64_t>(sizeof(float));
      segments.push_back({messages + message, target + to, tensors.sizes()[i]});
      message += kernels::QuantBytes(tensors.sizes()[i], kFormat);
    }
    return
        [=](device::Stream& stream) { return kernels::DequantReduce(segments, options, stream); };
  };
  const int64_t codes =
      kRanks * what.elements / kernels::kQuantBlock * kernels::QuantBlockBytes(kFormat);
  const int64_t written =
      kAgain ? Bytes(list, kFormat) : what.elements * static_cast<int64_t>(sizeof(float));
  Contest contest = {
      .bytes = kRanks * stride + written,
      .kernel = reduce(list),
      .ceilings = LineCeilings<kLines, kTargetLines>(messages, target, codes / (64 * kLines))};
  if (what.tensors > 1) contest.flat = reduce(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status =
      RegisterCases("dequant_reduce/from:int8/to:fp32", {.bytes_per_element = kRanks + 5},
                    Measure<QuantFormat::kInt8, false, 2, 1>);
  status.Update(RegisterCases("dequant_reduce/from:int4/to:fp32", {.bytes_per_element = kRanks},
                              Measure<QuantFormat::kInt4, false, 1, 1>));
  status.Update(RegisterCases("dequant_reduce/from:int4/to:int4", {.bytes_per_element = kRanks},
                              Measure<QuantFormat::kInt4, true, 8, 1>));
  return status;
}

}  // namespace brigade::benchmarks
