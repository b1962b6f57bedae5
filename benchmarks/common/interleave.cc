#include "brigade/benchmarks/common/interleave.h"

#include <algorithm>
#include <chrono>

namespace brigade::benchmarks {
namespace {

absl::StatusOr<double> TimeOne(const Work& work, int64_t operations, device::Stream& stream) {
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < operations; ++i) {
    if (absl::Status status = work(stream); !status.ok()) return status;
  }
  if (absl::Status status = stream.Synchronize(); !status.ok()) return status;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count() / static_cast<double>(operations);
}

}  // namespace

absl::StatusOr<std::vector<Seconds>> Interleave(absl::Span<const Work> contestants,
                                                int64_t operations, int64_t rounds,
                                                device::Stream& stream) {
  const size_t count = contestants.size();
  std::vector<Seconds> times(count);
  for (int64_t round = -1; round < rounds; ++round) {
    for (size_t turn = 0; turn < count; ++turn) {
      const size_t i = round % 2 == 0 ? turn : count - 1 - turn;
      absl::StatusOr<double> seconds = TimeOne(contestants[i], operations, stream);
      if (!seconds.ok()) return seconds.status();
      if (round >= 0) times[i].push_back(*seconds);
    }
  }
  return times;
}

double Median(Seconds values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double MedianRatio(absl::Span<const double> a, absl::Span<const double> b) {
  Seconds ratios;
  for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return Median(ratios);
}

}  // namespace brigade::benchmarks
