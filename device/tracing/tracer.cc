#include "brigade/device/tracing/tracer.h"

#include "brigade/device/tracing/trace_buffer.h"

namespace brigade::device {

Tracer::Tracer(size_t capacity) : capacity_(capacity) {}

Tracer::~Tracer() = default;

internal::TraceBuffer& Tracer::AddStream(absl::string_view context, absl::string_view stream) {
  MutexLock lock(mutex_);
  trace_buffers_.push_back(std::make_unique<internal::TraceBuffer>(context, stream, capacity_));
  return *trace_buffers_.back();
}

std::vector<TracedStream> Tracer::Take() {
  MutexLock lock(mutex_);
  std::vector<TracedStream> streams;
  streams.reserve(trace_buffers_.size());
  for (const auto& trace_buffer : trace_buffers_) streams.push_back(trace_buffer->Take());
  return streams;
}

}  // namespace brigade::device
