#ifndef BRIGADE_DEVICE_FILE_ALIGNED_MEMORY_H_
#define BRIGADE_DEVICE_FILE_ALIGNED_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "brigade/device/round_up.h"

namespace brigade::device::internal {

// What parts of a file and the memory for them are aligned to: at least as any disk asks.
inline constexpr int64_t kFileBlockBytes = 4096;

struct FreeAligned {
  void operator()(char* data) const { std::free(data); }
};
using AlignedMemory = std::unique_ptr<char[], FreeAligned>;

// Whole blocks of zeros; null if the system refuses.
inline AlignedMemory AllocateAligned(int64_t bytes) {
  const auto rounded = static_cast<size_t>(RoundUp(bytes > 0 ? bytes : 1, kFileBlockBytes));
  auto* const data = static_cast<char*>(std::aligned_alloc(kFileBlockBytes, rounded));
  if (data != nullptr) std::memset(data, 0, rounded);
  return AlignedMemory(data);
}

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_FILE_ALIGNED_MEMORY_H_
