// Signs with error feedback: reads array and error, then both again, and writes error and message.
// And the mean of eight ranks' messages.

#include "brigade/kernels/sign_pack/sign_pack.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/ceiling.h"
#include "brigade/benchmarks/kernels/step_memory.h"

namespace brigade::benchmarks {
namespace {

using kernels::SignPackSegment;
using kernels::SignUnpackSegment;
using precision::BFloat16;

constexpr int64_t kRanks = 8;

// Of all messages of a rank.
int64_t Bytes(const TensorList& list) {
  int64_t bytes = 0;
  for (const int64_t size : list.sizes()) bytes += kernels::SignBytes(size);
  return bytes;
}

// What the memory allows: the reads of the norm, and the update of the errors.
template <typename T>
std::vector<Work> PackCeilings(const T* array, float* error, int64_t size) {
  std::vector<Work> ceilings;
  const Work update = AccumulateCeiling<T>(array, error, size);
  const auto of_array = ReadCeilings(array, size * static_cast<int64_t>(sizeof(T)));
  const auto of_error = ReadCeilings(error, size * static_cast<int64_t>(sizeof(float)));
  for (size_t i = 0; i < of_array.size(); ++i) {
    ceilings.push_back([=, first = of_array[i], second = of_error[i]](device::Stream& stream) {
      absl::Status status = first(stream);
      status.Update(second(stream));
      status.Update(update(stream));
      return status;
    });
  }
  return ceilings;
}

template <typename T>
absl::Status MeasurePack(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  BRIGADE_ASSIGN_OR_RETURN(auto array, bench.CreateArray<T>(list.extent(), 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(auto error, bench.CreateZeros<float>(list.extent()));
  BRIGADE_ASSIGN_OR_RETURN(auto messages, bench.CreateZeros<uint8_t>(Bytes(list)));
  BRIGADE_ASSIGN_OR_RETURN(auto scale, bench.CreateZeros<float>(1));
  const kernels::SignPackOptions options = {precision::kDType<T>};
  std::vector<Work> packs;
  for (const TensorList& cut : {list, TensorList::Flat(what.elements)}) {
    const auto at = cut.Offsets(0), error_at = cut.Offsets(1);
    std::vector<SignPackSegment> segments;
    uint8_t* message = messages;
    for (size_t i = 0; i < at.size(); ++i) {
      segments.push_back({array + at[i], error + error_at[i], message, cut.sizes()[i]});
      message += kernels::SignBytes(cut.sizes()[i]);
    }
    const int64_t doubles = kernels::SignPackWorkspaceSize(segments);
    BRIGADE_ASSIGN_OR_RETURN(auto workspace, bench.CreateZeros<double>(doubles));
    packs.push_back([=](device::Stream& stream) {
      return kernels::SignPack(segments, options, {workspace, static_cast<size_t>(doubles)}, scale,
                               stream);
    });
  }
  constexpr int64_t kEach = 2 * sizeof(T) + 3 * sizeof(float);
  return Report({.bytes = what.elements * kEach + Bytes(list),
                 .kernel = packs[0],
                 .ceilings = PackCeilings(array, error, what.elements),
                 .flat = what.tensors > 1 ? packs[1] : nullptr},
                bench, state);
}

absl::Status MeasureUnpack(const Case& what, Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t stride = Bytes(list);
  BRIGADE_ASSIGN_OR_RETURN(auto messages, bench.CreateZeros<uint8_t>(kRanks * stride));
  BRIGADE_ASSIGN_OR_RETURN(auto array, bench.CreateZeros<float>(list.extent()));
  const kernels::SignUnpackOptions options = {precision::DType::kFloat32,
                                              {kRanks, stride, 1.0f / kRanks}};
  const auto unpack = [&](const TensorList& cut) -> Work {
    const auto at = cut.Offsets(0);
    std::vector<SignUnpackSegment> segments;
    const uint8_t* message = messages;
    for (size_t i = 0; i < at.size(); ++i) {
      segments.push_back({message, array + at[i], cut.sizes()[i]});
      message += kernels::SignBytes(cut.sizes()[i]);
    }
    return [=](device::Stream& stream) { return kernels::SignUnpack(segments, options, stream); };
  };
  // A line of bits, of any rank, for 4 of floats: 64 elements of all ranks.
  Contest contest = {.bytes = kRanks * stride + what.elements * static_cast<int64_t>(sizeof(float)),
                     .kernel = unpack(list),
                     .ceilings = LineCeilings<1, 4>(messages, array, what.elements * kRanks / 512)};
  if (what.tensors > 1) contest.flat = unpack(TensorList::Flat(what.elements));
  return Report(contest, bench, state);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  absl::Status status =
      RegisterCases("sign_pack/from:fp32/to:signs", {.bytes_per_element = 9}, MeasurePack<float>);
  status.Update(RegisterCases("sign_pack/from:bf16/to:signs", {.bytes_per_element = 7},
                              MeasurePack<BFloat16>));
  status.Update(
      RegisterCases("sign_pack/from:signs/to:fp32", {.bytes_per_element = 6}, MeasureUnpack));
  return status;
}

}  // namespace brigade::benchmarks
