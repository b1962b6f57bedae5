#ifndef BRIGADE_KERNELS_COMMON_STREAM_OUT_H_
#define BRIGADE_KERNELS_COMMON_STREAM_OUT_H_

#include <cstdint>

namespace brigade::kernels {

// Elements that a kernel gathers in a buffer in the first-level cache before it streams them out.
inline constexpr int64_t kStreamBlock =
    2048;  // 4 KiB of a 16-bit type; 1024 to 4096 measured alike

// Outputs of at least this many bytes are worth streaming: smaller ones may be read again from the caches.
inline constexpr int64_t kStreamOutBytes = int64_t{4} << 20;

// memcpy to memory that will not be read soon: past the caches, so that the old contents of `dst` are not
// read first. For write-only outputs; in-place updates are faster with ordinary stores.
// Visible to other threads as ordinary stores are (ends with a store fence).
void StreamOut(void* dst, const void* src, int64_t bytes);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_COMMON_STREAM_OUT_H_
