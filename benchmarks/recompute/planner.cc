// PlanBudget for chains of equal blocks, whose sizes have a common unit, and for chains of which
// every size is different, where the table of times has as many units as it may.

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "benchmark/benchmark.h"
#include "brigade/device/command_line.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/planner.h"

namespace brigade::recompute {
namespace {

// Blocks of a transformer with three options: 20, 14 and 10 outputs of 4 MiB are saved. `odd` bytes
// more for each stage leave no unit but that of the budget.
Chain Blocks(int stages, int64_t odd) {
  constexpr int64_t kOutput = int64_t{4} << 20;
  Chain chain;
  for (int s = 0; s < stages; ++s) {
    const int64_t more = odd * s;
    chain.stages.push_back(
        {.forward_time = 100,
         .output_bytes = kOutput + more,
         .gradient_bytes = kOutput + more,
         .options = {{.saved_bytes = 20 * kOutput + more, .backward_time = 200},
                     {.saved_bytes = 14 * kOutput + more, .backward_time = 203},
                     {.saved_bytes = 10 * kOutput + more, .backward_time = 213}}});
  }
  return chain;
}

void Plan(benchmark::State& state) {
  const Chain chain = Blocks(static_cast<int>(state.range(0)), state.range(1));
  // A quarter of what saving everything takes: 5 outputs for each stage.
  const int64_t budget = PlanNone(chain)->peak_bytes / 4;
  double time = 0;
  for (auto unused : state) {
    time = PlanBudget(chain, budget)->time;
    benchmark::DoNotOptimize(time);
  }
  state.counters["time_of_none"] = time / PlanNone(chain)->time;
}

BENCHMARK(Plan)
    ->ArgNames({"stages", "odd_bytes"})
    ->ArgsProduct({{4, 24, 48, 100, 200}, {0, 256}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace brigade::recompute

int main(int argc, char** argv) {
  if (brigade::device::AsksForHelp(argc, argv)) {
    std::puts("usage: planner [--benchmark_...]\n\nTimes plans of which activations to keep.\n");
    std::fflush(stdout);
    benchmark::PrintDefaultHelp();
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  // As benchmarks/common/main.cc does.
  benchmark::AddCustomContext("library",
                              "a DEBUG build of it, as Debian's is, changes no plan's time");
  const size_t run = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return run == 0 ? 1 : 0;
}
