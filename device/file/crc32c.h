#ifndef BRIGADE_DEVICE_FILE_CRC32C_H_
#define BRIGADE_DEVICE_FILE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "brigade/device/requirements.h"

namespace brigade::device {

// The CRC-32C of `bytes`, behind what has `crc` already: Crc32c(b, Crc32c(a)) is that of a and b.
// Finds accidents, not forgery.
//
// Traffic      Reads each byte once. By products without carries, where the processor has them for
//              512 bits, from the caches some 15 bytes a cycle; else with its CRC instruction, on
//              three streams, some 8; by tables where it has neither.
// Source       Castagnoli, Braeuer and Herrmann, 1993; RFC 3720, appendix B.4.
uint32_t Crc32c(absl::string_view bytes, uint32_t crc = 0);

// That of two strings, one behind the other, from those of each and the length of the second: the
// parts of a file may be summed by whoever writes them.
uint32_t CombineCrc32c(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_FILE_CRC32C_H_
