#include "brigade/benchmarks/kernels/ceiling.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <utility>

#include "brigade/device/threads/thread_pool.h"
#include "brigade/kernels/nontemporal_store.h"
#include "brigade/kernels/simd.h"
#include "brigade/kernels/update_types.h"
#include "brigade/precision/float16.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace brigade::benchmarks {
namespace {

using device::Access;
using device::Reads;
using device::ThreadPool;
using device::Writes;
using kernels::NoCopy;
using precision::BFloat16;
using precision::Half;

// Ranges are as long as the kernels' at most, like theirs at least 8 a thread, and a multiple of
// this.
constexpr int64_t kMaxGrain = int64_t{1} << 18;
constexpr int64_t kMinGrain = 4096;

// 0, but the compiler does not know: what is multiplied by it must be loaded.
volatile float opaque_zero = 0.0f;

// Where sums go that nobody wants.
std::atomic<uint64_t> sink;

// 16-bit types by their bits: as cheap as a conversion can be.
BRIGADE_INLINE float Widen(float x) { return x; }
template <typename T>
BRIGADE_INLINE float Widen(T x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}
template <typename T>
BRIGADE_INLINE T Narrow(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return T::FromBits(static_cast<uint16_t>(__builtin_bit_cast(uint32_t, x) >> 16));
  }
}

template <typename Fn>
void ForEachRange(int64_t size, ThreadPool& pool, const Fn& fn) {
  const int64_t share = size / (8 * pool.threads()) / kMinGrain * kMinGrain;
  const int64_t grain = std::clamp(share, kMinGrain, kMaxGrain);
  pool.ParallelRanges(size, grain, fn);
}

template <typename T>
int64_t Bytes(int64_t size) {
  return size * static_cast<int64_t>(sizeof(T));
}

template <bool kPrefetch>
Work ReadCeiling(const void* data, int64_t bytes) {
  return [=](device::Stream& stream) {
    return stream.Enqueue({"read", {Reads(data, bytes)}}, [=](ThreadPool& pool) {
      ForEachRange(bytes / 8, pool, [&](int64_t begin, int64_t end) {
        kernels::RunSimd([&]() BRIGADE_SIMD_BODY {
          constexpr int64_t kLine = 8;             // words of 8 bytes in a cache line
          constexpr int64_t kAhead = 128 * kLine;  // 8 KiB: 4 to 16 KiB measured alike
          const uint64_t* const words = static_cast<const uint64_t*>(data);
          uint64_t sum = 0;
          int64_t i = begin;
          if constexpr (kPrefetch) {
            uint64_t sums[kLine] = {};
            for (; i + kLine <= end; i += kLine) {
              __builtin_prefetch(words + i + kAhead);
              for (int64_t j = 0; j < kLine; ++j) sums[j] += words[i + j];
            }
            for (const uint64_t lane : sums) sum += lane;
          }
          for (; i < end; ++i) sum += words[i];
          sink.fetch_add(sum, std::memory_order_relaxed);
        });
      });
      return absl::OkStatus();
    });
  };
}

template <bool kNontemporal, typename Source, typename Target>
Work TransferCeiling(const Source* source, Target* target, int64_t size) {
  const auto range = [=](int64_t begin, int64_t end) {
    kernels::RunSimd([&]() BRIGADE_SIMD_BODY {
      const float zero = opaque_zero;
      const auto transfer = [&](const Source* from, Target* to, int64_t count) BRIGADE_SIMD_BODY {
        BRIGADE_SIMD_LOOP
        for (int64_t i = 0; i < count; ++i) to[i] = Narrow<Target>(Widen(from[i]) + zero);
      };
      if constexpr (kNontemporal) {
        constexpr int64_t kBlock = 2048;  // elements; stays in the first-level cache
        alignas(64) Target block[kBlock];
        for (int64_t i = begin; i < end; i += kBlock) {
          const int64_t count = std::min(kBlock, end - i);
          transfer(source + i, block, count);
          kernels::NontemporalStore(target + i, block, Bytes<Target>(count));
        }
        kernels::NontemporalStoreFence();
      } else {
        transfer(source + begin, target + begin, end - begin);
      }
    });
  };
  return [=](device::Stream& stream) {
    return stream.Enqueue(
        {"transfer", {Reads(source, Bytes<Source>(size)), Writes(target, Bytes<Target>(size))}},
        [=](ThreadPool& pool) {
          ForEachRange(size, pool, range);
          return absl::OkStatus();
        });
  };
}

// Eight words in the compiler's vectors.
using Line [[gnu::vector_size(64), gnu::aligned(8)]] = uint64_t;

template <int kReads, int kWrites, bool kNontemporal>
Work LineCeiling(const void* source, void* target, int64_t groups) {
  constexpr int64_t kLine = 8;  // words of 8 bytes
  const auto range = [=](int64_t begin, int64_t end) {
    kernels::RunSimd([&]() BRIGADE_SIMD_BODY {
      constexpr int64_t kBlock = 32;  // groups whose target stays in the first-level cache
      alignas(64) uint64_t block[kBlock * kWrites * kLine];
      for (int64_t i = begin; i < end; i += kBlock) {
        const int64_t count = std::min(kBlock, end - i);
        const auto* from = static_cast<const uint64_t*>(source) + i * kReads * kLine;
        uint64_t* const direct = static_cast<uint64_t*>(target) + i * kWrites * kLine;
        uint64_t* to = kNontemporal ? block : direct;
        for (int64_t g = 0; g < count; ++g, from += kReads * kLine, to += kWrites * kLine) {
          Line line = {}, next;
          for (int64_t r = 0; r < kReads; ++r, line |= next) {
            std::memcpy(&next, from + r * kLine, sizeof(Line));
          }
          for (int64_t w = 0; w < kWrites; ++w) std::memcpy(to + w * kLine, &line, sizeof(Line));
        }
        if (kNontemporal) kernels::NontemporalStore(direct, block, Bytes<uint64_t>(to - block));
      }
      if (kNontemporal) kernels::NontemporalStoreFence();
    });
  };
  return [=](device::Stream& stream) {
    return stream.Enqueue({"lines",
                           {Reads(source, Bytes<uint64_t>(groups * kReads * kLine)),
                            Writes(target, Bytes<uint64_t>(groups * kWrites * kLine))}},
                          [=](ThreadPool& pool) {
                            ForEachRange(groups, pool, range);
                            return absl::OkStatus();
                          });
  };
}

#ifdef __x86_64__
// Updates `matrix` and writes it to `product` past the caches, straight from registers, as the
// kernel writes it: through a block in the first-level cache it has less. `size` is a multiple of
// 16.
__attribute__((target("avx512f"))) void WritePastCaches(float* matrix, float* product,
                                                        int64_t size) {
  const __m512 zero = _mm512_set1_ps(opaque_zero);
  for (int64_t i = 0; i + 16 <= size; i += 16) {
    const __m512 line = _mm512_loadu_ps(matrix + i) + zero;
    _mm512_storeu_ps(matrix + i, line);
    __m512i bits = _mm512_castps_si512(line);
    // clang makes an ordinary store of what it knows to be floats.
    __asm__("" : "+v"(bits));
    _mm512_stream_si512(reinterpret_cast<__m512i*>(product + i), bits);
  }
}
#endif

template <bool kNontemporal>
Work RestoreCeiling(float* matrix, float* product, int64_t size) {
  const auto range = [=](int64_t begin, int64_t end) {
    kernels::RunSimdWithTag([&]([[maybe_unused]] auto simd) BRIGADE_SIMD_BODY {
#ifdef __x86_64__
      if constexpr (kNontemporal && decltype(simd)::kValue == kernels::SimdTarget::kAvx512) {
        WritePastCaches(matrix + begin, product + begin, end - begin);
        return kernels::NontemporalStoreFence();
      }
#endif
      constexpr int64_t kBlock = 1024;  // elements; stays in the first-level cache
      alignas(64) float block[kBlock];
      const float zero = opaque_zero;
      for (int64_t first = begin; first < end; first += kBlock) {
        const int64_t count = std::min(kBlock, end - first);
        float* const m = matrix + first;
        float* const to = kNontemporal ? block : product + first;
        BRIGADE_SIMD_LOOP
        for (int64_t i = 0; i < count; ++i) {
          m[i] += zero;
          to[i] = m[i];
        }
        if (kNontemporal) kernels::NontemporalStore(product + first, block, Bytes<float>(count));
      }
      if (kNontemporal) kernels::NontemporalStoreFence();
    });
  };
  return [=](device::Stream& stream) {
    return stream.Enqueue(
        {"restore", {Writes(matrix, Bytes<float>(size)), Writes(product, Bytes<float>(size))}},
        [=](ThreadPool& pool) {
          ForEachRange(size, pool, range);
          return absl::OkStatus();
        });
  };
}

}  // namespace

std::vector<Work> RestoreCeilings(float* matrix, float* product, int64_t size) {
  return {RestoreCeiling<false>(matrix, product, size),
          RestoreCeiling<true>(matrix, product, size)};
}

template <int kReads, int kWrites>
std::vector<Work> LineCeilings(const void* source, void* target, int64_t groups) {
  return {LineCeiling<kReads, kWrites, false>(source, target, groups),
          LineCeiling<kReads, kWrites, true>(source, target, groups)};
}

template <typename Grad, typename Copy, int kState>
Work UpdateCeiling(std::array<float*, kState> state, const Grad* grad, Copy* copy, int64_t size) {
  static_assert(kState >= 1 && kState <= 3);
  const auto range = [=](int64_t begin, int64_t end) {
    kernels::RunSimd([&]() BRIGADE_SIMD_BODY {
      const float zero = opaque_zero;
      float* const a = state[0];
      [[maybe_unused]] float* const b = state[kState > 1 ? 1 : 0];
      [[maybe_unused]] float* const c = state[kState > 2 ? 2 : 0];
      // Copies of what is captured: clang 14 takes a store to change what a reference leads to.
      const Grad* const from = grad;
      [[maybe_unused]] Copy* const to = copy;
      const int64_t last = end;
      BRIGADE_SIMD_LOOP
      for (int64_t i = begin; i < last; ++i) {
        const float nothing = Widen(from[i]) * zero;
        const float updated = a[i] + nothing;
        a[i] = updated;
        if constexpr (kState > 1) b[i] += nothing;
        if constexpr (kState > 2) c[i] += nothing;
        if constexpr (!std::is_same_v<Copy, NoCopy>) to[i] = Narrow<Copy>(updated);
      }
    });
  };
  return [=](device::Stream& stream) {
    std::vector<Access> accesses = {Reads(grad, Bytes<Grad>(size))};
    for (float* array : state) accesses.push_back(Writes(array, Bytes<float>(size)));
    if (copy != nullptr) accesses.push_back(Writes(copy, Bytes<Copy>(size)));
    return stream.Enqueue({"update", accesses}, [=](ThreadPool& pool) {
      ForEachRange(size, pool, range);
      return absl::OkStatus();
    });
  };
}

std::vector<Work> ReadCeilings(const void* data, int64_t bytes) {
  return {ReadCeiling<false>(data, bytes), ReadCeiling<true>(data, bytes)};
}

template <typename Source, typename Target>
std::vector<Work> TransferCeilings(const Source* source, Target* target, int64_t size) {
  return {TransferCeiling<false>(source, target, size),
          TransferCeiling<true>(source, target, size)};
}

template <typename Source>
Work AccumulateCeiling(const Source* source, float* target, int64_t size) {
  return UpdateCeiling<Source, NoCopy, 1>({target}, source, nullptr, size);
}

template <typename Grad, typename Copy>
Work CodedUpdateCeiling(float* param, std::array<uint8_t*, 2> codes, const Grad* grad, Copy* copy,
                        int64_t size) {
  const auto range = [=](int64_t begin, int64_t end) {
    kernels::RunSimd([&]() BRIGADE_SIMD_BODY {
      const float zero = opaque_zero;
      const auto word_zero = static_cast<uint64_t>(zero);
      float* const p = param;
      const Grad* const from = grad;
      [[maybe_unused]] Copy* const to = copy;
      constexpr int64_t kWord = 8;  // codes
      constexpr int64_t kBlock = 1024;
      for (int64_t first = begin; first < end; first += kBlock) {
        const int64_t last = std::min(end, first + kBlock);
        BRIGADE_SIMD_LOOP
        for (int64_t i = first; i < last; ++i) {
          const float x = p[i] + Widen(from[i]) * zero;
          p[i] = x;
          if constexpr (!std::is_same_v<Copy, NoCopy>) to[i] = Narrow<Copy>(x);
        }
        for (uint8_t* const array : codes) {
          auto* const words = reinterpret_cast<uint64_t*>(array + first);
          const int64_t count = (last - first) / kWord;
          BRIGADE_SIMD_LOOP
          for (int64_t i = 0; i < count; ++i) words[i] += word_zero;
        }
      }
    });
  };
  return [=](device::Stream& stream) {
    constexpr int64_t kCopyBytes = std::is_same_v<Copy, NoCopy> ? 0 : sizeof(Copy);
    std::vector<Access> accesses = {Writes(param, Bytes<float>(size)), Writes(codes[0], size),
                                    Writes(codes[1], size), Reads(grad, Bytes<Grad>(size))};
    if (kCopyBytes > 0) accesses.push_back(Writes(copy, size * kCopyBytes));
    return stream.Enqueue({"update", accesses}, [=](ThreadPool& pool) {
      ForEachRange(size, pool, range);
      return absl::OkStatus();
    });
  };
}

Work InTurn(std::vector<Work> works) {
  return [works = std::move(works)](device::Stream& stream) {
    absl::Status status;
    for (const Work& work : works) status.Update(work(stream));
    return status;
  };
}

#define BRIGADE_INSTANTIATE(Grad, Copy)                                                           \
  template Work UpdateCeiling<Grad, Copy, 3>(std::array<float*, 3>, const Grad*, Copy*, int64_t); \
  template Work UpdateCeiling<Grad, Copy, 2>(std::array<float*, 2>, const Grad*, Copy*, int64_t); \
  template Work UpdateCeiling<Grad, Copy, 1>(std::array<float*, 1>, const Grad*, Copy*, int64_t); \
  template Work CodedUpdateCeiling<Grad, Copy>(float*, std::array<uint8_t*, 2>, const Grad*,      \
                                               Copy*, int64_t);
BRIGADE_FOR_EACH_UPDATE_TYPE(BRIGADE_INSTANTIATE)
#undef BRIGADE_INSTANTIATE

#define BRIGADE_INSTANTIATE(Source, Target) \
  template std::vector<Work> TransferCeilings<Source, Target>(const Source*, Target*, int64_t);
BRIGADE_INSTANTIATE(float, float)
BRIGADE_INSTANTIATE(float, BFloat16)
BRIGADE_INSTANTIATE(BFloat16, float)
BRIGADE_INSTANTIATE(float, Half)
BRIGADE_INSTANTIATE(Half, float)
BRIGADE_INSTANTIATE(BFloat16, BFloat16)
#undef BRIGADE_INSTANTIATE

#define BRIGADE_INSTANTIATE(kReads, kWrites) \
  template std::vector<Work> LineCeilings<kReads, kWrites>(const void*, void*, int64_t);
BRIGADE_INSTANTIATE(2, 1)
BRIGADE_INSTANTIATE(4, 1)
BRIGADE_INSTANTIATE(8, 1)
BRIGADE_INSTANTIATE(1, 1)
BRIGADE_INSTANTIATE(1, 2)
BRIGADE_INSTANTIATE(1, 4)
BRIGADE_INSTANTIATE(1, 8)
#undef BRIGADE_INSTANTIATE

template Work AccumulateCeiling<float>(const float*, float*, int64_t);
template Work AccumulateCeiling<BFloat16>(const BFloat16*, float*, int64_t);

}  // namespace brigade::benchmarks
