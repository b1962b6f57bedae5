#ifndef BRIGADE_BENCHMARKS_COMMON_NUMBERS_H_
#define BRIGADE_BENCHMARKS_COMMON_NUMBERS_H_

#include "absl/status/status.h"

namespace brigade::benchmarks {

// The flags of a benchmark that are numbers count things and measure sizes; one that is 0 by
// default is chosen then. InvalidArgument, naming the flag, for a whole number below 1, or below 0
// where it is 0 by default, and for a double that is negative or not finite.
absl::Status CheckNumbers();

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COMMON_NUMBERS_H_
