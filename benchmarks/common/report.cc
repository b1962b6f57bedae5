#include "brigade/benchmarks/common/report.h"

#include <algorithm>

#include "brigade/benchmarks/common/main.h"

namespace brigade::benchmarks {
namespace {

// About a millisecond at the speed of memory; no more than 1000, so that a queue of operations stays small.
constexpr int64_t kTurnBytes = int64_t{64} << 20;
constexpr int64_t kMaxOperations = 1000;

}  // namespace

int64_t OperationsPerTurn(int64_t bytes) {
  return std::clamp<int64_t>(kTurnBytes / bytes, 1, kMaxOperations);
}

absl::Status Report(const Contest& contest, Bench& bench, benchmark::State& state) {
  std::vector<Work> contestants = {contest.kernel};
  contestants.insert(contestants.end(), contest.ceilings.begin(), contest.ceilings.end());
  if (contest.flat != nullptr) contestants.push_back(contest.flat);

  for (auto _ : state) {
    auto times =
        Interleave(contestants, OperationsPerTurn(contest.bytes), Rounds(), bench.stream());
    if (!times.ok()) return times.status();
    const Seconds& kernel = times->front();
    const Seconds* ceiling = nullptr;
    for (size_t i = 1; i <= contest.ceilings.size(); ++i) {
      const Seconds& candidate = (*times)[i];
      if (ceiling == nullptr || Median(candidate) < Median(*ceiling)) ceiling = &candidate;
    }
    const double gigabytes = static_cast<double>(contest.bytes) * 1e-9;
    state.SetIterationTime(Median(kernel));
    state.counters["GB/s"] = gigabytes / Median(kernel);
    state.counters["ceiling"] = gigabytes / Median(*ceiling);
    state.counters["of_ceiling"] = MedianRatio(*ceiling, kernel);
    if (contest.flat != nullptr) state.counters["of_flat"] = MedianRatio(times->back(), kernel);
  }
  return absl::OkStatus();
}

}  // namespace brigade::benchmarks
