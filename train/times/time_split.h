#ifndef BRIGADE_TRAIN_TIMES_TIME_SPLIT_H_
#define BRIGADE_TRAIN_TIMES_TIME_SPLIT_H_

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/types/span.h"
#include "brigade/device/requirements.h"
#include "brigade/device/tracing/tracer.h"

namespace brigade::train {

// What a stream does at a moment, from the least to the most telling.
enum class Activity : uint8_t {
  // No operation, or a wait for an event that is not in a collective.
  kIdle,
  // A collective, and its waits for other ranks.
  kCommunication,
  // Checks gradients, decides the step, updates.
  kOptimizer,
  // Anything else: layers, copies, fills, sums of micro-batches.
  kOtherCompute,
  // A matrix product.
  kGemm,
};

// By the names of operations and events; the table is in time_split.cc.
Activity ActivityOf(const device::TracedOperation& operation);

// Where a rank's time went, in seconds of wall time.
//
// Each moment belongs to the most telling activity of any of the rank's streams:
//   gemm, other_compute     some stream computes;
//   optimizer               none does, and some stream is in the optimizer;
//   exposed_communication   none does either, and some stream is in a collective;
//   idle                    all streams are idle.
// These five add up to the wall time. Beside them, and part of the first three:
//   hidden_communication    some stream is in a collective while another computes or is in the
//                           optimizer.
// So all communication is exposed plus hidden.
struct Seconds {
  double gemm = 0.0;
  double other_compute = 0.0;
  double optimizer = 0.0;
  double exposed_communication = 0.0;
  double idle = 0.0;

  double hidden_communication = 0.0;

  // Operations that the tracer had no room for; they count as idle time.
  int64_t dropped = 0;

  Seconds& operator+=(const Seconds& other);
  double wall() const { return gemm + other_compute + optimizer + exposed_communication + idle; }
};

// Splits the time of one rank as its operations come in, from any number of streams.
//
// Memory       Operations of a stream wait here until all streams have come as far; the rest is
//              sums.
// Precision    Counted in nanoseconds, exactly.
// Threads      One at a time.
class TimeSplit {
 public:
  // The wall time begins at `begin_ns` of the steady clock; what lies before it is not counted.
  TimeSplit(int streams, int64_t begin_ns);

  // A stream's next operations, in order of time.
  void Add(int stream, absl::Span<const device::TracedOperation> operations);

  // The split from `begin_ns` to `end_ns`, which comes after the end of all that was added: to be
  // called when the streams' operations have all been. Ends this object's use.
  Seconds Finish(int64_t end_ns);

 private:
  struct Interval {
    Activity activity;
    int64_t begin_ns, end_ns;
  };
  struct Stream {
    std::deque<Interval> ahead;
    // All operations of the stream up to this point are here or counted.
    int64_t known_ns;
  };

  void SplitUntil(int64_t until_ns);

  std::vector<Stream> streams_;
  // All time up to this point is counted.
  int64_t split_ns_;
  // [Activity].
  std::array<int64_t, 5> ns_ = {};
  int64_t hidden_ns_ = 0;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_TIMES_TIME_SPLIT_H_
