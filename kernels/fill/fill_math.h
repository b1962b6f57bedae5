#ifndef BRIGADE_KERNELS_FILL_FILL_MATH_H_
#define BRIGADE_KERNELS_FILL_FILL_MATH_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// One array. Device memory.
struct FillSegment {
  // [size] of the call's dtype.
  void* data;
  int64_t size;
};

// An element's bytes, repeated to fill 16: what goes to every 16-byte boundary of an array.
// Elements are 1, 2, 4 or 8 bytes at addresses that are multiples of their size, so the bytes at
// address a are always those from a mod 16 on.
struct alignas(16) FillPattern {
  uint32_t words[4];
};

// The pattern of an element of 1, 2, 4 or 8 bytes. On the host.
template <typename T>
FillPattern MakeFillPattern(T element) {
  FillPattern pattern;
  for (size_t i = 0; i < sizeof(pattern); i += sizeof(element)) {
    std::memcpy(reinterpret_cast<char*>(&pattern) + i, &element, sizeof(element));
  }
  return pattern;
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_FILL_FILL_MATH_H_
