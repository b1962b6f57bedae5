#ifndef BRIGADE_KERNELS_INTERNAL_GPU_TILE_H_
#define BRIGADE_KERNELS_INTERNAL_GPU_TILE_H_

// The layout of element-wise work on the GPU: which thread touches which elements, and how. Plain
// C++ that the host runs in tests.
//
// A block of 256 threads takes a tile, each of its warps a chunk of 32 packs, a pack the elements
// of one thread. A pack is made of groups: consecutive elements that a thread moves at once, of 16
// bytes in the widest array. The groups of a warp lie side by side, so that each of its accesses
// covers whole sectors, the units of 32 bytes in which memory moves, in arrays of every width: 512
// bytes of float, 256 of a 16-bit type beside it. A pack of 8 puts 48 KiB and more in flight on an
// SM at half occupancy, which is what Hopper's memory needs.
//
// Chunks start at sectors: a segment that starts `shift` elements past one has its first chunk cut
// short by `shift`, as its last one is by its length. In these two, and everywhere where the arrays
// of a segment start at different distances from a boundary, the lanes of a warp take single
// elements side by side, which the memory system joins into sectors: as many loads in flight, by
// four times the loads and stores for float, 8 for a 16-bit type alone, 16 for bytes.

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "brigade/precision/host_device.h"

namespace brigade::kernels {

inline constexpr int kTileThreads = 256;
inline constexpr int kWarp = 32;
inline constexpr int kSectorBytes = 32;
// The elements of a thread, where a kernel does not say another number. Untuned.
inline constexpr int kPackSize = 8;
// CUDA's limit in x.
inline constexpr int64_t kMaxGridBlocks = (int64_t{1} << 31) - 1;

// The elements that a thread moves at once where the widest array has elements of `bytes`.
BRIGADE_HOST_DEVICE constexpr int GroupSize(size_t bytes) { return static_cast<int>(16 / bytes); }

// The elements of T that a thread holds, so that groups of them can be moved at once.
template <typename T, int kPack = kPackSize>
struct alignas(16) Pack {
  T values[kPack];
};

// Moves kGroup elements by one access of 4, 8 or 16 bytes.
template <int kGroup, typename T>
BRIGADE_INLINE void LoadGroup(const T* from, T* to) {
  constexpr int kBytes = kGroup * sizeof(T);
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#ifdef __CUDA_ARCH__
  using Words =
      std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, uint32_t>>;
  *reinterpret_cast<Words*>(to) = *reinterpret_cast<const Words*>(from);
#else
  std::memcpy(to, __builtin_assume_aligned(from, kBytes), kBytes);
#endif
}

template <int kGroup, typename T>
BRIGADE_INLINE void StoreGroup(const T* from, T* to) {
  constexpr int kBytes = kGroup * sizeof(T);
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#ifdef __CUDA_ARCH__
  // As PTX: given plain vectors to store, nvcc 13.0 splits half of them into words.
  uint32_t words[kBytes / sizeof(uint32_t)];
  std::memcpy(words, from, kBytes);
  const auto address = __cvta_generic_to_global(to);
  if constexpr (kBytes == 16) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(address), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};"
                 :
                 : "l"(address), "r"(words[0]), "r"(words[1])
                 : "memory");
  } else {
    asm volatile("st.global.b32 [%0], %1;" : : "l"(address), "r"(words[0]) : "memory");
  }
#else
  std::memcpy(__builtin_assume_aligned(to, kBytes), from, kBytes);
#endif
}

// The elements of a thread in a chunk that lies in the arrays as a whole: groups.
template <int kGroup, int kPack>
class WholeChunk {
 public:
  BRIGADE_INLINE WholeChunk(int64_t begin, int lane) : first_(begin + lane * kGroup) {}

  template <typename T>
  BRIGADE_INLINE Pack<T, kPack> Load(const T* array) const {
    Pack<T, kPack> pack;
    for (int j = 0; j < kPack; j += kGroup) {
      LoadGroup<kGroup>(array + first_ + j * kWarp, pack.values + j);
    }
    return pack;
  }

  template <typename T>
  BRIGADE_INLINE void Store(const Pack<T, kPack>& pack, T* array) const {
    for (int j = 0; j < kPack; j += kGroup) {
      StoreGroup<kGroup>(pack.values + j, array + first_ + j * kWarp);
    }
  }

  // Whether the arrays have element j of the pack.
  BRIGADE_INLINE static constexpr bool Has(int) { return true; }

 private:
  int64_t first_;
};

// The elements of a thread in any other chunk: every 32nd, those that the arrays have.
template <int kPack>
class EdgeChunk {
 public:
  BRIGADE_INLINE EdgeChunk(int64_t begin, int lane, int64_t size) : first_(begin + lane) {
    const int64_t left = size - first_ + kWarp - 1;
    const int count = left < kWarp * kPack ? static_cast<int>(left / kWarp) : kPack;
    has_ = static_cast<uint32_t>((uint64_t{1} << count) - 1);
    // A chunk begins less than 32 elements before the arrays.
    if (first_ < 0) has_ &= ~1u;
  }

  BRIGADE_INLINE bool Has(int j) const { return (has_ >> j & 1) != 0; }

  // Those that the arrays do not have are 0.
  template <typename T>
  BRIGADE_INLINE Pack<T, kPack> Load(const T* array) const {
    Pack<T, kPack> pack = {};
    for (int j = 0; j < kPack; ++j) {
      if (Has(j)) pack.values[j] = array[first_ + j * kWarp];
    }
    return pack;
  }

  template <typename T>
  BRIGADE_INLINE void Store(const Pack<T, kPack>& pack, T* array) const {
    for (int j = 0; j < kPack; ++j) {
      if (Has(j)) array[first_ + j * kWarp] = pack.values[j];
    }
  }

 private:
  static_assert(kPack <= 32);
  int64_t first_;
  // A bit for each element that the arrays have.
  uint32_t has_;
};

// How a segment is cut into tiles, by where its arrays start.
template <int kGroup, int kPack = kPackSize>
class PackLayout {
 public:
  static constexpr int64_t kChunk = kWarp * kPack;
  static constexpr int64_t kTile = kTileThreads * kPack;

  // Of the arrays, `narrowest` has the smallest elements: chunks start at its sectors.
  template <typename T>
  BRIGADE_HOST_DEVICE explicit PackLayout(const T* narrowest)
      : shift_(LowBits(narrowest) % kSectorBytes / sizeof(T)) {}

  // Each of the other arrays but null ones. `narrowest` itself changes nothing.
  template <typename T>
  BRIGADE_HOST_DEVICE void Add(const T* array) {
    misfit_ |= (LowBits(array) - shift_ * static_cast<uint32_t>(sizeof(T))) % (kGroup * sizeof(T));
  }

  // The elements that the first chunk lacks at its front.
  BRIGADE_HOST_DEVICE int64_t shift() const { return shift_; }
  // Whether groups are aligned in every array.
  BRIGADE_HOST_DEVICE bool whole() const { return misfit_ == 0; }

  // Tiles of a segment of `size` elements; 0 for an empty one.
  BRIGADE_HOST_DEVICE int64_t Tiles(int64_t size) const {
    return size == 0 ? 0 : (size + shift_ + kTile - 1) / kTile;
  }

  // Calls run(chunk) for the elements of thread `thread` of tile `tile` in a segment of `size`:
  // with a WholeChunk or an EdgeChunk, the same for all threads of a warp.
  template <typename Run>
  BRIGADE_INLINE void ForThread(int64_t size, int64_t tile, int thread, const Run& run) const {
    const int64_t begin = tile * kTile + thread / kWarp * kChunk - shift_;
    if (whole() && begin >= 0 && begin + kChunk <= size) {
      run(WholeChunk<kGroup, kPack>(begin, thread % kWarp));
    } else if (begin < size) {
      run(EdgeChunk<kPack>(begin, thread % kWarp, size));
    }
  }

 private:
  // What alignment depends on.
  BRIGADE_HOST_DEVICE static uint32_t LowBits(const void* array) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(array));
  }

  uint32_t shift_;
  // Bytes between groups and their boundaries, of all arrays: 0 if there are none.
  uint32_t misfit_ = 0;
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_GPU_TILE_H_
