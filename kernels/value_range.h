#ifndef BRIGADE_KERNELS_VALUE_RANGE_H_
#define BRIGADE_KERNELS_VALUE_RANGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace brigade::kernels {

// The values that a hyper-parameter may have, ends included, and how a message says so. NaN is in
// no range.
struct ValueRange {
  double low;
  double high;
  const char* text;
};

// Ranges of values that kernels use as floats: what would become 1, 0 or infinity there is outside.
inline constexpr ValueRange kBelowOne = {0.0, 1.0 - 0x1p-24, "in [0, 1)"};
inline constexpr ValueRange kUnit = {0.0, 1.0, "in [0, 1]"};
inline constexpr ValueRange kNonNegative = {0.0, 3.0e38, "finite and not negative"};
inline constexpr ValueRange kPositive = {0x1p-149, 3.0e38,
                                         "positive, finite, and not 0 as a float"};

// InvalidArgument unless the range contains the value. `group` is named unless it is negative.
absl::Status CheckInRange(absl::string_view operation, absl::string_view name, int64_t group,
                          double value, ValueRange range);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_VALUE_RANGE_H_
