#include "brigade/kernels/nontemporal_store.h"

#include <algorithm>
#include <cstring>

#include "brigade/kernels/internal/cache_line.h"
#include "brigade/kernels/simd.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace brigade::kernels {
namespace {

// A copy in three parts: up to the first line of the target, whole lines past the caches, and the
// rest. Whole lines only: the write-combining buffers then never have to merge with memory.
struct Parts {
  int64_t head;
  int64_t lines;
  int64_t tail;

  Parts(const char* dst, int64_t bytes)
      : head(std::min(bytes, ElementsToLine(dst))),
        lines((bytes - head) / kCacheLine * kCacheLine),
        tail(bytes - head - lines) {}
};

#ifdef __x86_64__
__attribute__((target("avx512f,avx512bw"))) void NontemporalStore512(char* dst, const char* src,
                                                                     int64_t bytes) {
  const Parts parts(dst, bytes);
  const auto copy_some = [&](int64_t at, int64_t count)
      __attribute__((target("avx512f,avx512bw"))) {
    const __mmask64 some = (uint64_t{1} << count) - 1;
    _mm512_mask_storeu_epi8(dst + at, some, _mm512_maskz_loadu_epi8(some, src + at));
  };
  // Not of nothing: a masked store of no byte still fetches the line that it names, which is the
  // next block's.
  if (parts.head > 0) copy_some(0, parts.head);
  int64_t i = parts.head;
  for (; i < parts.head + parts.lines; i += kCacheLine) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(dst + i), _mm512_loadu_si512(src + i));
  }
  if (parts.tail > 0) copy_some(i, parts.tail);
}

void StoreLines(char* dst, const char* src, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += sizeof(__m128i)) {
    const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i));
    _mm_stream_si128(reinterpret_cast<__m128i*>(dst + i), value);
  }
}
#else
void StoreLines(char* dst, const char* src, int64_t bytes) { std::memcpy(dst, src, bytes); }
#endif

}  // namespace

void NontemporalStore(void* to, const void* from, int64_t bytes) {
  char* const dst = static_cast<char*>(to);
  const char* const src = static_cast<const char*>(from);
#ifdef __x86_64__
  if (CurrentSimdTarget() == SimdTarget::kAvx512) return NontemporalStore512(dst, src, bytes);
#endif
  const Parts parts(dst, bytes);
  const int64_t rest = parts.head + parts.lines;
  std::memcpy(dst, src, parts.head);
  StoreLines(dst + parts.head, src + parts.head, parts.lines);
  std::memcpy(dst + rest, src + rest, parts.tail);
}

void NontemporalStoreFence() {
#ifdef __x86_64__
  _mm_sfence();
#endif
}

}  // namespace brigade::kernels
