#ifndef BRIGADE_KERNELS_INTERNAL_CACHE_LINE_H_
#define BRIGADE_KERNELS_INTERNAL_CACHE_LINE_H_

#include <algorithm>
#include <cstdint>

#include "brigade/precision/host_device.h"

namespace brigade::kernels {

// In bytes.
inline constexpr int64_t kCacheLine = 64;

// How many elements lie between an element's address and the next line's begin; 0 at a line's
// begin.
template <typename T>
int64_t ElementsToLine(const T* address) {
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) % kCacheLine);
  return (kCacheLine - past) % kCacheLine / static_cast<int64_t>(sizeof(T));
}

// Fetches the line of an address that need not be one of an array, where it is written: g++ moves
// the prefetches of an unrolled loop together, which then wait for each other.
BRIGADE_INLINE void FetchLine(const void* address) {
  __builtin_prefetch(address);
  __asm__ volatile("" ::: "memory");
}

// Calls loop(from, to) for the elements [begin, end) in two parts, the second from a line of
// `written` on: vector stores that cross lines cost a tensor at an odd address 15 % of its speed.
// Short ranges stay whole.
template <typename T, typename Loop>
BRIGADE_INLINE void SplitAtLine(const T* written, int64_t begin, int64_t end, const Loop& loop) {
  constexpr int64_t kShort = 256;
  int64_t to = end;
  if (end - begin >= kShort) to = begin + ElementsToLine(written + begin);
  for (int64_t from = begin; from < end; from = to, to = end) loop(from, to);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_CACHE_LINE_H_
