#include "brigade/benchmarks/common/interleave.h"

#include <algorithm>

#include "brigade/benchmarks/common/stopwatch.h"
#include "brigade/device/status_macros.h"

namespace brigade::benchmarks {
namespace {

absl::StatusOr<double> TimeOne(const Work& work, int64_t operations, Stopwatch& stopwatch,
                               device::Stream& stream) {
  // Keeps a GPU busy while the host enqueues what is timed.
  if (stream.device().kind == device::DeviceKind::kCuda) BRIGADE_RETURN_IF_ERROR(work(stream));
  BRIGADE_RETURN_IF_ERROR(stopwatch.Start(stream));
  for (int64_t i = 0; i < operations; ++i) BRIGADE_RETURN_IF_ERROR(work(stream));
  BRIGADE_ASSIGN_OR_RETURN(auto seconds, stopwatch.Stop(stream));
  return seconds / static_cast<double>(operations);
}

}  // namespace

absl::StatusOr<std::vector<Seconds>> Interleave(absl::Span<const Work> contestants,
                                                int64_t operations, int64_t rounds,
                                                device::Stream& stream) {
  BRIGADE_ASSIGN_OR_RETURN(auto stopwatch, Stopwatch::Create(stream.device()));
  const size_t count = contestants.size();
  std::vector<Seconds> times(count);
  for (int64_t round = -1; round < rounds; ++round) {
    for (size_t turn = 0; turn < count; ++turn) {
      const size_t i = round % 2 == 0 ? turn : count - 1 - turn;
      absl::StatusOr<double> seconds = TimeOne(contestants[i], operations, *stopwatch, stream);
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
