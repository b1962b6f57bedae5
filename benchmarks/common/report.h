#ifndef BRIGADE_BENCHMARKS_COMMON_REPORT_H_
#define BRIGADE_BENCHMARKS_COMMON_REPORT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "benchmark/benchmark.h"
#include "brigade/benchmarks/common/bench.h"
#include "brigade/benchmarks/common/interleave.h"

namespace brigade::benchmarks {

// What a case measures. All work on the same memory, with the same threads.
struct Contest {
  // Read and written by one operation.
  int64_t bytes;
  Work kernel;
  // CPU: loops with the same streams; the fastest one counts.
  std::vector<Work> ceilings;
  // For lists: the kernel over one range of as many elements.
  Work flat = nullptr;
  // Of one turn, so that a queue of operations stays small; fewer where they cost more than bytes.
  int64_t most_operations = 1000;
};

// Interleaves the contestants for --rounds rounds and fills in the benchmark's time, the median per
// operation, and the counters GB/s, ceiling (in GB/s), of_ceiling and, for lists, of_flat. On a GPU
// the ceiling is a copy from device to device that moves as many bytes, and the counters are copy
// and of_copy. benchmarks/kernels/README.md says how to read them.
absl::Status Report(const Contest& contest, Bench& bench, benchmark::State& state);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COMMON_REPORT_H_
