#ifndef BRIGADE_DEVICE_BYTE_COUNT_H_
#define BRIGADE_DEVICE_BYTE_COUNT_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace brigade::device {

// A number of bytes as users write it: a whole number from 1 on, perhaps with KiB, MiB or GiB
// behind it. None for any other text, and for more than an int64_t holds.
std::optional<int64_t> ParseByteCount(absl::string_view text);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_BYTE_COUNT_H_
