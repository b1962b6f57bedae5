#ifndef BRIGADE_ZERO_INTERNAL_FNV1A_H_
#define BRIGADE_ZERO_INTERNAL_FNV1A_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace brigade::zero::internal {

// A hash of 64 bits, the same on every machine. `before`: that of the bytes that come before.
//
// Source       Fowler, Noll, Vo: FNV-1a.
inline uint64_t Fnv1a(absl::string_view bytes, uint64_t before = 0xcbf29ce484222325u) {
  for (const char byte : bytes) {
    before = (before ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  }
  return before;
}

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_FNV1A_H_
