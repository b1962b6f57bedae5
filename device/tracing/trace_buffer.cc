#include "brigade/device/tracing/trace_buffer.h"

namespace brigade::device::internal {

TraceBuffer::TraceBuffer(absl::string_view context, absl::string_view stream, size_t capacity)
    : context_(context), stream_(stream), capacity_(capacity) {
  operations_.reserve(capacity);
}

void TraceBuffer::Add(TracedOperation::Kind kind, absl::string_view name, int64_t begin_ns,
                      int64_t end_ns, int64_t bytes) {
  MutexLock lock(mutex_);
  if (operations_.size() == capacity_) {
    ++dropped_;
    return;
  }
  auto known = names_.find(name);
  if (known == names_.end()) known = names_.emplace(name).first;
  operations_.push_back({kind, *known, begin_ns, end_ns, bytes});
}

void TraceBuffer::Drop(int64_t operations) {
  MutexLock lock(mutex_);
  dropped_ += operations;
}

TracedStream TraceBuffer::Take() {
  MutexLock lock(mutex_);
  // A copy, because the memory here is warm and stays for what comes next.
  TracedStream taken = {context_, stream_, operations_, dropped_};
  operations_.clear();
  dropped_ = 0;
  return taken;
}

}  // namespace brigade::device::internal
