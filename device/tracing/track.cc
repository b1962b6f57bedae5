#include "brigade/device/tracing/track.h"

namespace brigade::device::internal {

Track::Track(absl::string_view context, absl::string_view stream, size_t capacity)
    : context_(context), stream_(stream), capacity_(capacity) {
  operations_.reserve(capacity);
}

void Track::Add(TracedOperation::Kind kind, absl::string_view name, int64_t begin_ns,
                int64_t end_ns) {
  std::lock_guard lock(mutex_);
  if (operations_.size() == capacity_) {
    ++dropped_;
    return;
  }
  auto known = names_.find(name);
  if (known == names_.end()) known = names_.emplace(name).first;
  operations_.push_back({kind, *known, begin_ns, end_ns});
}

void Track::Drop(int64_t operations) {
  std::lock_guard lock(mutex_);
  dropped_ += operations;
}

TracedStream Track::Take() {
  std::lock_guard lock(mutex_);
  // A copy, because the memory here is warm and stays for what comes next.
  TracedStream taken = {context_, stream_, operations_, dropped_};
  operations_.clear();
  dropped_ = 0;
  return taken;
}

}  // namespace brigade::device::internal
