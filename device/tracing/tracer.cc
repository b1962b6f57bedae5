#include "brigade/device/tracing/tracer.h"

#include "brigade/device/tracing/track.h"

namespace brigade::device {

Tracer::Tracer(size_t capacity) : capacity_(capacity) {}

Tracer::~Tracer() = default;

internal::Track& Tracer::AddStream(absl::string_view context, absl::string_view stream) {
  std::lock_guard lock(mutex_);
  tracks_.push_back(std::make_unique<internal::Track>(context, stream, capacity_));
  return *tracks_.back();
}

std::vector<TracedStream> Tracer::Take() {
  std::lock_guard lock(mutex_);
  std::vector<TracedStream> streams;
  streams.reserve(tracks_.size());
  for (const auto& track : tracks_) streams.push_back(track->Take());
  return streams;
}

}  // namespace brigade::device
