// Attention on a GPU, in TFLOP/s of the pairs of positions of which one sees the other: forward 4,
// backward 10 for each pair and element of a row. benchmarks/peers/pytorch_attention --device=cuda
// has PyTorch's beside it.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "brigade/benchmarks/common/bench.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/device/status_macros.h"
#include "brigade/nn/attention.h"
#include "brigade/precision/dtype.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::benchmarks {
namespace {

using precision::DType;

// Back to back, behind one that is not timed, unless --operations says how many. fp32 is without
// tensor cores, and a pass takes a tenth of a second and more.
constexpr int64_t OperationsOf(DType dtype) { return dtype == DType::kFloat32 ? 1 : 10; }

template <typename T>
absl::Status Measure(const nn::AttentionShape& shape, bool backward, Bench& bench,
                     benchmark::State& state) {
  const int64_t size = shape.rows() * shape.width;
  BRIGADE_ASSIGN_OR_RETURN(T* const qkv, bench.CreateArray<T>(3 * size, 2.0f));
  BRIGADE_ASSIGN_OR_RETURN(T* const dout, bench.CreateArray<T>(size, 2.0f));
  BRIGADE_ASSIGN_OR_RETURN(T* const out, bench.CreateZeros<T>(size));
  BRIGADE_ASSIGN_OR_RETURN(T* const dqkv, bench.CreateZeros<T>(3 * size));
  BRIGADE_ASSIGN_OR_RETURN(float* const log_sum_exp, bench.CreateZeros<float>(shape.statistics()));
  BRIGADE_ASSIGN_OR_RETURN(
      char* const workspace,
      bench.CreateZeros<char>(nn::AttentionWorkspaceBytes(shape, bench.context().device())));
  const Work forward = [&](device::Stream& stream) {
    return nn::Attention(shape, qkv, out, log_sum_exp, stream);
  };
  const Work gradient = [&](device::Stream& stream) {
    return nn::AttentionBackward(shape, qkv, out, log_sum_exp, dout, workspace, dqkv, stream);
  };
  // What the backward pass reads.
  BRIGADE_RETURN_IF_ERROR(forward(bench.stream()));
  BRIGADE_ASSIGN_OR_RETURN(const auto seconds,
                           Interleave({backward ? gradient : forward},
                                      Operations() == 0 ? OperationsOf(shape.dtype) : Operations(),
                                      Rounds(), bench.stream()));
  const auto context = static_cast<double>(shape.context);
  const double pairs = static_cast<double>(shape.batch) * context * (context + 1) / 2;
  const double median = Median(seconds[0]);
  for (auto _ : state) state.SetIterationTime(median);
  state.counters["TFLOP/s"] =
      (backward ? 10 : 4) * pairs * static_cast<double>(shape.width) * 1e-12 / median;
  return absl::OkStatus();
}

absl::Status MeasureAny(const nn::AttentionShape& shape, bool backward, benchmark::State& state) {
  BRIGADE_ASSIGN_OR_RETURN(const auto bench, Bench::Create(BenchDevice(), 1));
  absl::Status status;
  precision::VisitFloat(shape.dtype, [&](auto tag) {
    // Bench has arrays of the types that train.
    if constexpr (sizeof(tag) <= sizeof(float)) {
      status = Measure<decltype(tag)>(shape, backward, *bench, state);
    }
  });
  return status;
}

void Register(const nn::AttentionShape& shape, bool backward) {
  const std::string name = absl::StrCat(
      "attention/", backward ? "backward" : "forward", "/type:", precision::ShortName(shape.dtype),
      "/batch:", shape.batch, "/context:", shape.context, "/heads:", shape.heads,
      "/width:", shape.head_width(), "/cuda");
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 const absl::Status status = MeasureAny(shape, backward, state);
                                 if (!status.ok()) state.SkipWithError(status.ToString().c_str());
                               })
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

absl::Status RegisterBenchmarks() {
  if (BenchDevice().kind != device::DeviceKind::kCuda) {
    return absl::InvalidArgumentError(
        "on the CPU there is //benchmarks/nn:attention: add "
        "--device=cuda");
  }
  // A GPU that cannot be used ends it here, with the reason.
  BRIGADE_RETURN_IF_ERROR(Bench::Create(BenchDevice(), 1).status());
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    for (const bool backward : {false, true}) {
      // What the emulator runs.
      Register({dtype, 1, 64, 2, 2 * 64}, backward);
      // 16 Ki positions of a row of 2048, as in the tables of FlashAttention-2's paper.
      constexpr int64_t kRows = 16 << 10, kWidth = 2048;
      for (const int64_t head : {64, 128}) {
        for (const int64_t context : {512, 2048, 8192}) {
          Register({dtype, kRows / context, context, kWidth / head, kWidth}, backward);
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace brigade::benchmarks
