#include "brigade/kernels/value_range.h"

#include "absl/strings/str_cat.h"

namespace brigade::kernels {

absl::Status CheckInRange(absl::string_view operation, absl::string_view name, int64_t group,
                          double value, ValueRange range) {
  if (value >= range.low && value <= range.high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(operation, ": ", name,
                                                 group < 0 ? "" : absl::StrCat(" of group ", group),
                                                 " is ", value, ", must be ", range.text));
}

}  // namespace brigade::kernels
