#ifndef BRIGADE_DEVICE_BYTE_COUNT_H_
#define BRIGADE_DEVICE_BYTE_COUNT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace brigade::device {

// A number of bytes as users write it: a whole number from 1 on, perhaps with a power of 1024
// behind it: KiB, MiB, GiB, TiB, or K, M, G, T as nccl-tests has them. None for any other text, and
// for more than an int64_t holds.
std::optional<int64_t> ParseByteCount(absl::string_view text);

// The same as a flag's type. A refusal says how it is written.
struct ByteCount {
  int64_t value = 1;
};
bool AbslParseFlag(absl::string_view text, ByteCount* bytes, std::string* error);
std::string AbslUnparseFlag(ByteCount bytes);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_BYTE_COUNT_H_
