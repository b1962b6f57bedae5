#include "brigade/benchmarks/common/report.h"

#include <algorithm>

#include "brigade/benchmarks/common/main.h"
#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {
namespace {

// About a millisecond at the speed of memory.
constexpr int64_t kTurnBytes = int64_t{64} << 20;
constexpr int64_t kGpuTurnBytes = int64_t{4} << 30;

// How many operations one timed turn enqueues back to back, so that a turn over small arrays is
// long enough to be timed and to hide the wait at its end.
int64_t OperationsPerTurn(const Contest& contest, device::DeviceKind device) {
  if (Operations() != 0) return Operations();
  const int64_t turn = device == device::DeviceKind::kCuda ? kGpuTurnBytes : kTurnBytes;
  return std::clamp<int64_t>(turn / contest.bytes, 1, contest.most_operations);
}

// A copy that reads and writes `bytes` bytes in all.
absl::StatusOr<Work> CopyCeiling(int64_t bytes, Bench& bench) {
  constexpr int64_t kLargest = int64_t{1} << 30;  // beyond the caches by far
  const int64_t half = bytes / 2, piece = std::min(half, kLargest);
  BRIGADE_ASSIGN_OR_RETURN(auto from, bench.CreateZeros<char>(piece));
  BRIGADE_ASSIGN_OR_RETURN(auto to, bench.CreateZeros<char>(piece));
  return [=, from = from, to = to](device::Stream& stream) -> absl::Status {
    for (int64_t at = 0; at < half; at += piece) {
      BRIGADE_RETURN_IF_ERROR(stream.Copy(to, from, std::min(piece, half - at)));
    }
    return absl::OkStatus();
  };
}

}  // namespace

absl::Status Report(const Contest& contest, Bench& bench, benchmark::State& state) {
  const device::DeviceKind device = bench.context().device().kind;
  const bool gpu = device == device::DeviceKind::kCuda;
  std::vector<Work> ceilings = contest.ceilings;
  if (gpu) {
    BRIGADE_ASSIGN_OR_RETURN(auto copy, CopyCeiling(contest.bytes, bench));
    ceilings = {copy};
  }
  std::vector<Work> contestants = {contest.kernel};
  contestants.insert(contestants.end(), ceilings.begin(), ceilings.end());
  if (contest.flat != nullptr) contestants.push_back(contest.flat);

  for (auto _ : state) {
    auto times =
        Interleave(contestants, OperationsPerTurn(contest, device), Rounds(), bench.stream());
    if (!times.ok()) return times.status();
    const Seconds& kernel = times->front();
    const Seconds* ceiling = nullptr;
    for (size_t i = 1; i <= ceilings.size(); ++i) {
      const Seconds& candidate = (*times)[i];
      if (ceiling == nullptr || Median(candidate) < Median(*ceiling)) ceiling = &candidate;
    }
    const double gigabytes = static_cast<double>(contest.bytes) * 1e-9;
    state.SetIterationTime(Median(kernel));
    state.counters["GB/s"] = gigabytes / Median(kernel);
    state.counters[gpu ? "copy" : "ceiling"] = gigabytes / Median(*ceiling);
    state.counters[gpu ? "of_copy" : "of_ceiling"] = MedianRatio(*ceiling, kernel);
    if (contest.flat != nullptr) state.counters["of_flat"] = MedianRatio(times->back(), kernel);
  }
  return absl::OkStatus();
}

}  // namespace brigade::benchmarks
