#ifndef BRIGADE_PROFILE_TRACE_ROWS_H_
#define BRIGADE_PROFILE_TRACE_ROWS_H_

// What a rank's streams did in one step, from their trace: which operations of which unit of the
// model, how long, over how many bytes, and what waits waited for.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/requirements.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/profile/roofline.h"

namespace brigade::profile {

enum class Pass : uint8_t { kForward, kBackward, kRecompute, kNone };
inline constexpr int kPasses = 3;

// Where a stream is in the model.
struct Place {
  // -1: in none.
  int unit = -1;
  Pass pass = Pass::kNone;

  friend bool operator==(const Place&, const Place&) = default;
};

enum class Kind : uint8_t {
  kProduct,
  kAttention,
  // Other work.
  kOther,
  kOptimizer,
  // A collective, or its wait for other ranks.
  kCollective,
  // For an event that is no collective's.
  kWait,
  // Nothing is enqueued.
  kIdle,
};

// What names in a trace mean.
struct TraceNames {
  // Of an operation that only marks where the stream is from here on; else nothing.
  std::function<std::optional<Place>(absl::string_view name)> place;
  // kIdle of an operation that does nothing, and is no such mark.
  std::function<Kind(const device::TracedOperation& operation)> kind;
  // Of marks where a step begins, and where one has ended, on the stream of the passes.
  std::function<bool(absl::string_view name)> begins_step, ends_step;
};

// Operations of a kind and a name in one place.
struct Row {
  std::string stream = {};
  Place place = {};
  Kind kind = Kind::kOther;
  std::string name = {};
  int64_t calls = 0;
  double seconds = 0;
  // That they declare to read and write.
  double bytes = 0;
  // Of collectives, waits and idle time: what limited meanwhile. Work says it by the roofline.
  LimitSeconds limits = {};
};

// The operations of a stream, in order of time.
struct StreamOperations {
  std::string stream = {};
  std::vector<device::TracedOperation> operations = {};
};

// When the step that has the first end among these operations ended, and when it began: where the
// last mark of a begin before that is. None: the mark is not there yet, or has been dropped.
struct StepMarks {
  std::optional<int64_t> begin_ns = std::nullopt, end_ns = std::nullopt;
};
StepMarks FindStep(const StreamOperations& stream, const TraceNames& names);

// The rows of what begins from `begin_ns` to `end_ns`.
//
// Places       Those of `main`, the stream of the passes; other streams are in none.
// Time         The rows of `main` add up to end - begin: what lies between two operations is idle,
//              limited by the host. Of the other streams there are operations alone.
// Waits        Of `main`: network as long as another stream is in a collective, memory where
//              another one works otherwise, host where all are idle. A collective, and its wait for
//              other ranks, is network.
// Order        By stream as given, then in the order in which they come first.
std::vector<Row> RowsOf(absl::Span<const StreamOperations> streams, absl::string_view main,
                        int64_t begin_ns, int64_t end_ns, const TraceNames& names);

}  // namespace brigade::profile

#endif  // BRIGADE_PROFILE_TRACE_ROWS_H_
