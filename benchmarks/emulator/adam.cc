// How fast the emulator runs a kernel: AdamW with bf16 gradients and copy, by its public call, on
// an emulated device that has one thread of the host.

#include "brigade/kernels/adam/adam.h"

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "brigade/benchmarks/common/bench.h"
#include "brigade/benchmarks/common/main.h"
#include "brigade/benchmarks/kernels/step_memory.h"
#include "brigade/device/status_macros.h"
#include "brigade/emulator/runtime/control.h"

namespace brigade::benchmarks {
namespace {

using precision::BFloat16;

// PTX instructions of threads, for each second and core.
constexpr double kBar = 50e6;

absl::Status Measure(int64_t size, benchmark::State& state) {
  BRIGADE_ASSIGN_OR_RETURN(const auto bench, Bench::Create(device::Cuda(), /*threads=*/1));
  BRIGADE_ASSIGN_OR_RETURN(float* const param, bench->CreateArray<float>(size, 1.0f));
  BRIGADE_ASSIGN_OR_RETURN(float* const m, bench->CreateZeros<float>(size));
  BRIGADE_ASSIGN_OR_RETURN(float* const v, bench->CreateZeros<float>(size));
  BRIGADE_ASSIGN_OR_RETURN(BFloat16* const grad, bench->CreateArray<BFloat16>(size, 16.0f));
  BRIGADE_ASSIGN_OR_RETURN(BFloat16* const copy, bench->CreateZeros<BFloat16>(size));
  BRIGADE_ASSIGN_OR_RETURN(const auto* const step, bench->CreateCopy(OrdinaryState()));
  BRIGADE_ASSIGN_OR_RETURN(const auto* const group_step, bench->CreateCopy(OrdinaryGroupStep()));
  const std::vector<kernels::AdamSegment> segments = {{param, m, v, grad, copy, size, 0}};
  const kernels::AdamGroup group = {.weight_decay = 0.01};
  kernels::AdamOptions options;
  options.grad_dtype = precision::kDType<BFloat16>;
  options.copy_dtype = precision::kDType<BFloat16>;
  options.groups = {&group, 1};
  options.state = step;
  options.group_steps = group_step;

  emulator::RecordLaunches(true);
  double seconds = 0, best = 0;
  for (auto _ : state) {
    for (int64_t round = 0; round < Rounds(); ++round) {
      const auto begin = std::chrono::steady_clock::now();
      BRIGADE_RETURN_IF_ERROR(kernels::Adam(segments, options, bench->stream()));
      BRIGADE_RETURN_IF_ERROR(bench->stream().Synchronize());
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      int64_t executed = 0;
      for (const auto& launch : emulator::TakeLaunches()) executed += launch.executed;
      const double speed = static_cast<double>(executed) / took.count();
      if (speed > best) best = speed, seconds = took.count();
    }
    state.SetIterationTime(seconds);
  }
  // Of the fastest round: others share the machine.
  state.counters["PTX/s"] = best;
  state.counters["of_bar"] = best / kBar;
  return absl::OkStatus();
}

}  // namespace

absl::Status RegisterBenchmarks() {
  setenv("BRIGADE_EMULATOR_THREADS", "1", 1);
  setenv("BRIGADE_EMULATOR_DELAY_US", "0", 1);
  for (const int64_t size : {int64_t{1} << 12, int64_t{1} << 20}) {
    benchmark::RegisterBenchmark(("adam/elements:" + std::to_string(size)).c_str(),
                                 [size](benchmark::State& state) {
                                   const absl::Status status = Measure(size, state);
                                   if (!status.ok()) state.SkipWithError(status.ToString().c_str());
                                 })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  return absl::OkStatus();
}

}  // namespace brigade::benchmarks
