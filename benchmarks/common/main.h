#ifndef BRIGADE_BENCHMARKS_COMMON_MAIN_H_
#define BRIGADE_BENCHMARKS_COMMON_MAIN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/device.h"

namespace brigade::benchmarks {

// Each benchmark binary defines this one; main.cc calls it when flags are parsed.
absl::Status RegisterBenchmarks();

// --rounds: how often each contestant is timed.
int64_t Rounds();

// --operations: how often a contestant runs while it is timed once; 0: about a millisecond long.
int64_t Operations();

// --device: what to measure on.
device::Device BenchDevice();

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COMMON_MAIN_H_
