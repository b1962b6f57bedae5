// Our simplest kernels beside CUB and Thrust, which have one launch for each tensor of a list.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "brigade/benchmarks/common/cases.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/common/report.h"
#include "brigade/benchmarks/kernels/cub_rivals.h"
#include "brigade/device/cuda/cuda_status.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/amax/amax.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/fill/fill.h"

namespace brigade::benchmarks {
namespace {

using precision::BFloat16;
using precision::DType;

// What a contestant works on: a tensor, or where those of a list begin.
struct Arrays {
  const float* source = nullptr;
  BFloat16* narrow = nullptr;
  float* target = nullptr;
  int64_t size = 0;
  // Of CUB's reduction.
  uint8_t* memory = nullptr;
  size_t memory_bytes = 0;
  kernels::AmaxWorkspace* workspace = nullptr;
  kernels::AmaxResult* result = nullptr;
};

using Contestant = std::function<absl::Status(absl::Span<const Arrays>, device::Stream&)>;

// launch(cudaStream_t) -> cudaError_t
template <typename F>
absl::Status Launch(device::Stream& stream, const F& launch) {
  return stream.Launch({"rival"}, [&](void* on) {
    return device::CudaStatus(launch(static_cast<cudaStream_t>(on)), "rival");
  });
}

// A launch for each tensor.
template <typename F>
Contestant OneByOne(const F& launch) {
  return [launch](absl::Span<const Arrays> tensors, device::Stream& stream) {
    for (const Arrays& tensor : tensors) BRIGADE_RETURN_IF_ERROR(launch(tensor, stream));
    return absl::OkStatus();
  };
}

absl::Status Measure(const Case& what, int64_t bytes_per_element, const Contestant& contestant,
                     Bench& bench, benchmark::State& state) {
  const TensorList list = what.list();
  const int64_t extent = list.extent();
  Arrays all = {.size = what.elements};
  BRIGADE_ASSIGN_OR_RETURN(all.source, bench.CreateArray<float>(extent, 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(all.narrow, bench.CreateZeros<BFloat16>(extent));
  BRIGADE_ASSIGN_OR_RETURN(all.target, bench.CreateZeros<float>(extent));
  BRIGADE_ASSIGN_OR_RETURN(all.workspace, bench.CreateZeros<kernels::AmaxWorkspace>(1));
  BRIGADE_ASSIGN_OR_RETURN(all.result, bench.CreateZeros<kernels::AmaxResult>(1));
  BRIGADE_RETURN_IF_ERROR(Launch(bench.stream(), [&](cudaStream_t stream) {
    return CubAmax(all.source, all.size, nullptr, all.memory_bytes, &all.result->value, stream);
  }));
  BRIGADE_ASSIGN_OR_RETURN(all.memory,
                           bench.CreateZeros<uint8_t>(static_cast<int64_t>(all.memory_bytes)));
  std::vector<Arrays> tensors(list.sizes().size(), all);
  const std::vector<int64_t> from = list.Offsets(0), to = list.Offsets(1);
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].source += from[i];
    tensors[i].narrow += to[i];
    tensors[i].target += to[i];
    tensors[i].size = list.sizes()[i];
  }
  const Contest contest = {
      .bytes = what.elements * bytes_per_element,
      .kernel = [&](device::Stream& stream) { return contestant(tensors, stream); },
      .ceilings = {},
      // A launch for each tensor, which Thrust waits for, takes milliseconds.
      .most_operations = what.tensors == 1 ? 1000 : 10};
  return Report(contest, bench, state);
}

absl::Status Register(const std::string& name, int64_t bytes_per_element,
                      const Contestant& contestant) {
  return RegisterCases(name, {.bytes_per_element = 2 * sizeof(float) + sizeof(BFloat16)},
                       [=](const Case& what, Bench& bench, benchmark::State& state) {
                         return Measure(what, bytes_per_element, contestant, bench, state);
                       });
}

absl::Status RegisterCasts() {
  constexpr int64_t kBytes = sizeof(float) + sizeof(BFloat16);
  absl::Status status = Register(
      "cast/brigade", kBytes, [](absl::Span<const Arrays> tensors, device::Stream& stream) {
        std::vector<kernels::CastSegment> segments;
        for (const Arrays& a : tensors) segments.push_back({a.source, a.narrow, a.size});
        return kernels::Cast(segments, {.target_dtype = DType::kBFloat16}, stream);
      });
  status.Update(Register(
      "cast/thrust::transform", kBytes, OneByOne([](const Arrays& a, device::Stream& stream) {
        return Launch(stream,
                      [&](cudaStream_t on) { return ThrustCast(a.source, a.narrow, a.size, on); });
      })));
  status.Update(Register(
      "cast/cub::DeviceTransform", kBytes, OneByOne([](const Arrays& a, device::Stream& stream) {
        return Launch(stream,
                      [&](cudaStream_t on) { return CubCast(a.source, a.narrow, a.size, on); });
      })));
  return status;
}

absl::Status RegisterFills() {
  constexpr int64_t kBytes = sizeof(float);
  absl::Status status = Register("fill/brigade", kBytes,
                                 [](absl::Span<const Arrays> tensors, device::Stream& stream) {
                                   std::vector<kernels::FillSegment> segments;
                                   for (const Arrays& a : tensors)
                                     segments.push_back({a.target, a.size});
                                   return kernels::Fill(segments, DType::kFloat32, 1.0, stream);
                                 });
  status.Update(Register(
      "fill/thrust::fill", kBytes, OneByOne([](const Arrays& a, device::Stream& stream) {
        return Launch(stream,
                      [&](cudaStream_t on) { return ThrustFill(a.target, a.size, 1.0f, on); });
      })));
  status.Update(Register(
      "fill/cub::DeviceTransform", kBytes, OneByOne([](const Arrays& a, device::Stream& stream) {
        return Launch(stream, [&](cudaStream_t on) { return CubFill(a.target, a.size, 1.0f, on); });
      })));
  return status;
}

absl::Status RegisterAmaxes() {
  constexpr int64_t kBytes = sizeof(float);
  absl::Status status =
      Register("amax/brigade", kBytes, OneByOne([](const Arrays& a, device::Stream& stream) {
                 return kernels::Amax(a.source, a.size, {}, a.workspace, a.result, stream);
               }));
  status.Update(Register(
      "amax/cub::DeviceReduce", kBytes, OneByOne([](const Arrays& a, device::Stream& stream) {
        return Launch(stream, [&](cudaStream_t on) {
          size_t bytes = a.memory_bytes;
          return CubAmax(a.source, a.size, a.memory, bytes, &a.result->value, on);
        });
      })));
  return status;
}

}  // namespace

absl::Status RegisterBenchmarks() {
  if (BenchDevice().kind != device::DeviceKind::kCuda) {
    return absl::InvalidArgumentError("CUB and Thrust run on GPUs: add --device=cuda");
  }
  absl::Status status = RegisterCasts();
  status.Update(RegisterFills());
  status.Update(RegisterAmaxes());
  return status;
}

}  // namespace brigade::benchmarks
