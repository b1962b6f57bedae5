#ifndef BRIGADE_DEVICE_TRACING_TRACK_H_
#define BRIGADE_DEVICE_TRACING_TRACK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/node_hash_set.h"
#include "absl/strings/string_view.h"
#include "brigade/device/tracing/tracer.h"

namespace brigade::device::internal {

inline int64_t SteadyNs() {
  const auto since_epoch = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count();
}

// One stream's operations that nobody has taken yet.
//
// Threads      Safe from any thread.
class Track {
 public:
  Track(absl::string_view context, absl::string_view stream, size_t capacity);

  // In order of time. `name` is copied the first time it comes.
  void Add(TracedOperation::Kind kind, absl::string_view name, int64_t begin_ns, int64_t end_ns);
  void Drop(int64_t operations);

  TracedStream Take();

 private:
  const std::string context_;
  const std::string stream_;
  const size_t capacity_;

  std::mutex mutex_;
  absl::node_hash_set<std::string> names_;  // at addresses that stay
  std::vector<TracedOperation> operations_;
  int64_t dropped_ = 0;
};

// Adds what happens while it lives; with a null track it is one branch at each end.
class TrackedScope {
 public:
  TrackedScope(Track* track, TracedOperation::Kind kind, absl::string_view name)
      : track_(track), kind_(kind), name_(name) {
    if (track_ != nullptr) begin_ns_ = SteadyNs();
  }
  ~TrackedScope() {
    if (track_ != nullptr) track_->Add(kind_, name_, begin_ns_, SteadyNs());
  }
  TrackedScope(const TrackedScope&) = delete;
  TrackedScope& operator=(const TrackedScope&) = delete;

 private:
  Track* const track_;
  const TracedOperation::Kind kind_;
  const absl::string_view name_;
  int64_t begin_ns_ = 0;
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_TRACING_TRACK_H_
