#ifndef BRIGADE_BENCHMARKS_NN_PEAK_H_
#define BRIGADE_BENCHMARKS_NN_PEAK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::benchmarks {

// Floating-point operations on numbers in registers by every compute thread, `operations` or a few
// more altogether: multiply-adds of float, or of pairs for bfloat16 where the processor has them.
absl::Status EnqueuePeak(precision::DType dtype, double operations, int threads,
                         device::Stream& stream);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_NN_PEAK_H_
