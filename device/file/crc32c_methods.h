#ifndef BRIGADE_DEVICE_FILE_CRC32C_METHODS_H_
#define BRIGADE_DEVICE_FILE_CRC32C_METHODS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace brigade::device {

// A way to compute a CRC-32C.
struct Crc32cMethod {
  const char* name;
  // Whether the processor has what it needs.
  bool (*is_there)();
  // As Crc32c, but that of no bytes is 32 ones, and no bit of the result is turned.
  uint32_t (*sum)(absl::string_view bytes, uint32_t sum);
};

// Crc32c takes the first that is there; the last always is.
absl::Span<const Crc32cMethod> Crc32cMethods();

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_FILE_CRC32C_METHODS_H_
