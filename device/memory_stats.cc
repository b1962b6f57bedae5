#include "brigade/device/memory_stats.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace brigade::device {

absl::string_view ToString(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kFile:
      return "file";
  }
  return "unknown";
}

absl::string_view ToString(Purpose purpose) {
  switch (purpose) {
    case Purpose::kParameters:
      return "parameters";
    case Purpose::kGradients:
      return "gradients";
    case Purpose::kOptimizerState:
      return "optimizer_state";
    case Purpose::kActivations:
      return "activations";
    case Purpose::kCommunication:
      return "communication";
    case Purpose::kScratch:
      return "scratch";
  }
  return "unknown";
}

int64_t MemoryStats::current_bytes(Purpose purpose) const {
  MutexLock lock(mutex_);
  return by_purpose_[static_cast<size_t>(purpose)].current;
}

int64_t MemoryStats::peak_bytes(Purpose purpose) const {
  MutexLock lock(mutex_);
  return by_purpose_[static_cast<size_t>(purpose)].peak;
}

int64_t MemoryStats::current_bytes() const {
  MutexLock lock(mutex_);
  return total_.current;
}

int64_t MemoryStats::peak_bytes() const {
  MutexLock lock(mutex_);
  return total_.peak;
}

void MemoryStats::ResetPeaks() {
  MutexLock lock(mutex_);
  for (Entry& entry : by_purpose_) entry.peak = entry.current;
  total_.peak = total_.current;
}

std::string MemoryStats::ToString() const {
  MutexLock lock(mutex_);
  std::string text;
  for (int i = 0; i < kPurposes; ++i) {
    const int64_t bytes = by_purpose_[static_cast<size_t>(i)].current;
    if (bytes == 0) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    brigade::device::ToString(static_cast<Purpose>(i)), " ", bytes);
  }
  return text.empty() ? "nothing" : text;
}

void MemoryStats::Add(Purpose purpose, int64_t bytes) {
  MutexLock lock(mutex_);
  for (Entry* entry : {&by_purpose_[static_cast<size_t>(purpose)], &total_}) {
    entry->current += bytes;
    entry->peak = std::max(entry->peak, entry->current);
  }
}

void MemoryStats::Remove(Purpose purpose, int64_t bytes) {
  MutexLock lock(mutex_);
  by_purpose_[static_cast<size_t>(purpose)].current -= bytes;
  total_.current -= bytes;
}

}  // namespace brigade::device
