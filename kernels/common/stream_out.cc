#include "brigade/kernels/common/stream_out.h"

#include <algorithm>
#include <cstring>

#include "brigade/kernels/common/cache_line.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace brigade::kernels {

void StreamOut(void* dst, const void* src, int64_t bytes) {
#ifdef __SSE2__
  char* out = static_cast<char*>(dst);
  const char* in = static_cast<const char*>(src);
  const int64_t head = std::min(bytes, ElementsToLine(out));
  std::memcpy(out, in, head);
  int64_t i = head;
  // Whole lines only: the write-combining buffers then never have to merge with memory.
  for (; i + kCacheLine <= bytes; i += kCacheLine) {
    for (int64_t j = i; j < i + kCacheLine; j += sizeof(__m128i)) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + j));
      _mm_stream_si128(reinterpret_cast<__m128i*>(out + j), value);
    }
  }
  std::memcpy(out + i, in + i, bytes - i);
#else
  std::memcpy(dst, src, bytes);
#endif
}

void StreamOutFence() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace brigade::kernels
