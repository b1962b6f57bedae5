#ifndef BRIGADE_DEVICE_MEMORY_STATS_H_
#define BRIGADE_DEVICE_MEMORY_STATS_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device {

// Where memory is.
enum class Tier : uint8_t { kDevice, kHost, kFile };

inline constexpr int kTiers = 3;

// "device", "host", "file".
absl::string_view ToString(Tier tier);

// What memory is for, in the terms of the ZeRO paper's memory model, so that the measured bytes can
// be compared with its formulas.
enum class Purpose : uint8_t {
  kParameters,
  kGradients,
  kOptimizerState,
  kActivations,
  kCommunication,
  kScratch,
};

inline constexpr int kPurposes = 6;

// "parameters", "gradients", "optimizer_state", "activations", "communication", "scratch".
absl::string_view ToString(Purpose purpose);

// Bytes that one context owns of a tier, its device's memory or the host's, by purpose: the current
// bytes, and the peak since the last ResetPeaks.
//
// Exact        Counts what was asked for, not what the allocator rounds it to. Borrowed memory is
//              not counted.
// Peaks        The peak of the total is the largest total at one moment, not the sum of the
//              purposes' peaks.
// Threads      Safe from any thread.
class MemoryStats {
 public:
  MemoryStats() = default;
  MemoryStats(const MemoryStats&) = delete;
  MemoryStats& operator=(const MemoryStats&) = delete;

  int64_t current_bytes(Purpose purpose) const;
  int64_t peak_bytes(Purpose purpose) const;

  // Of all purposes together.
  int64_t current_bytes() const;
  int64_t peak_bytes() const;

  // Sets every peak to the current value.
  void ResetPeaks();

  // The current bytes of the purposes that have any: "parameters 1024, scratch 96", or "nothing".
  std::string ToString() const;

  // For Context and Buffer.
  void Add(Purpose purpose, int64_t bytes);
  void Remove(Purpose purpose, int64_t bytes);

 private:
  struct Entry {
    int64_t current = 0;
    int64_t peak = 0;
  };

  mutable Mutex mutex_;
  std::array<Entry, kPurposes> by_purpose_ ABSL_GUARDED_BY(mutex_);
  Entry total_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_MEMORY_STATS_H_
