#ifndef BRIGADE_BENCHMARKS_COMMON_INTERLEAVE_H_
#define BRIGADE_BENCHMARKS_COMMON_INTERLEAVE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"

namespace brigade::benchmarks {

// Enqueues one operation.
using Work = std::function<absl::Status(device::Stream&)>;

// Seconds per operation, one entry a round.
using Seconds = std::vector<double>;

// Times contestants that take turns, so that whatever else the machine does in the meantime hits
// all of them: each round enqueues `operations` of the first and waits, then of the second, and so
// on; every other round runs in the opposite order. One round before the first is not timed, and on
// a GPU one operation at the beginning of each turn.
//
// Returns the times in the order of the contestants. A failed operation ends it with its error.
absl::StatusOr<std::vector<Seconds>> Interleave(absl::Span<const Work> contestants,
                                                int64_t operations, int64_t rounds,
                                                device::Stream& stream);

// The mean of the two middle ones if their number is even; `values` is not empty.
double Median(Seconds values);

// The median of a[i] / b[i]: neighbours in time are compared with each other.
double MedianRatio(absl::Span<const double> a, absl::Span<const double> b);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COMMON_INTERLEAVE_H_
