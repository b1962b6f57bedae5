#ifndef BRIGADE_KERNELS_INTERNAL_GPU_TILE_H_
#define BRIGADE_KERNELS_INTERNAL_GPU_TILE_H_

// The layout of element-wise work on the GPU: which thread touches which elements, and how. Plain
// C++ that the host runs in tests.
//
// A block of 256 threads takes a tile of 2048 elements. A thread takes 8 consecutive ones: two
// 16-byte accesses of float, one of a 16-bit type, all issued before the first is used. That puts
// 48 KiB and more in flight on an SM at half occupancy, which is what Hopper's memory needs.
//
// Packs of 8 are laid so that they start on 16-byte boundaries: a segment that starts `shift`
// elements past one has its first pack cut short by `shift`, as its last one is by its length, and
// only these two go element by element. Where the arrays of a segment start at different distances
// from a boundary no pack can be aligned in all of them; then the threads take single elements side
// by side, which the memory system still joins into full lines.

#include <cstdint>
#include <cstring>

#include "brigade/precision/host_device.h"

namespace brigade::kernels {

inline constexpr int kTileThreads = 256;
// The elements of a thread.
inline constexpr int kPackSize = 8;
// Untuned.
inline constexpr int64_t kGpuTile = kTileThreads * kPackSize;
// CUDA's limit in x.
inline constexpr int64_t kMaxGridBlocks = (int64_t{1} << 31) - 1;

// Where the packs of a segment lie.
struct PackLayout {
  // The elements that the first pack lacks at its front: 0 to 7.
  int64_t shift;
  // Whether whole packs are 16-byte aligned in every array.
  bool vector;
};

// Elements of size `kBytes` from the last boundary between packs, whose first address a pack of 8
// can have: 16 bytes for 16-bit types, and for float too (a pack is two accesses there).
template <int kBytes>
BRIGADE_HOST_DEVICE inline int64_t ElementsPastBoundary(const void* data) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % 16) / kBytes;
}

// The layout for arrays with elements of the given sizes. A 16-bit array fixes the shift; floats,
// of which 4 fill 16 bytes, must agree with it. Null arrays do not take part.
class PackLayoutBuilder {
 public:
  template <typename T>
  BRIGADE_HOST_DEVICE void Add(const T* data) {
    static_assert(sizeof(T) == 2 || sizeof(T) == 4);
    if (data == nullptr) return;
    if (sizeof(T) == 2) {
      Agree(ElementsPastBoundary<2>(data), half_shift_, has_half_);
    } else {
      Agree(ElementsPastBoundary<4>(data), float_shift_, has_float_);
    }
  }

  BRIGADE_HOST_DEVICE PackLayout Build() const {
    PackLayout layout;
    layout.shift = has_half_ ? half_shift_ : float_shift_;
    layout.vector = agree_ && !(has_half_ && has_float_ && half_shift_ % 4 != float_shift_);
    if (!layout.vector) layout.shift = 0;
    return layout;
  }

 private:
  BRIGADE_HOST_DEVICE void Agree(int64_t shift, int64_t& known, bool& has) {
    agree_ = agree_ && (!has || known == shift);
    known = shift;
    has = true;
  }

  int64_t half_shift_ = 0;
  int64_t float_shift_ = 0;
  bool has_half_ = false;
  bool has_float_ = false;
  bool agree_ = true;
};

// Tiles of a segment of `size` elements; 0 for an empty one.
BRIGADE_HOST_DEVICE inline int64_t GpuTiles(int64_t size, PackLayout layout) {
  return size == 0 ? 0 : (size + layout.shift + kGpuTile - 1) / kGpuTile;
}

// Eight elements of T as a thread moves them: by 16-byte accesses.
template <typename T>
struct alignas(16) Pack8 {
  T values[kPackSize];
};

template <typename T>
BRIGADE_INLINE Pack8<T> LoadPack8(const T* from) {
  Pack8<T> pack;
#ifdef __CUDA_ARCH__
  for (unsigned i = 0; i < sizeof(pack) / sizeof(uint4); ++i) {
    reinterpret_cast<uint4*>(&pack)[i] = reinterpret_cast<const uint4*>(from)[i];
  }
#else
  std::memcpy(&pack, __builtin_assume_aligned(from, 16), sizeof(pack));
#endif
  return pack;
}

template <typename T>
BRIGADE_INLINE void StorePack8(const Pack8<T>& pack, T* to) {
#ifdef __CUDA_ARCH__
  // As PTX: given plain vectors to store, nvcc 13.0 splits half of them into words.
  uint32_t words[sizeof(pack) / sizeof(uint32_t)];
  std::memcpy(words, &pack, sizeof(pack));
  for (unsigned i = 0; i < sizeof(pack) / 16; ++i) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(reinterpret_cast<char*>(to) + 16 * i)),
                   "r"(words[4 * i]), "r"(words[4 * i + 1]), "r"(words[4 * i + 2]),
                   "r"(words[4 * i + 3])
                 : "memory");
  }
#else
  std::memcpy(__builtin_assume_aligned(to, 16), &pack, sizeof(pack));
#endif
}

// Gives thread `thread` of tile `tile` its elements of a segment of `size`: either one call of
// pack(first), for 8 elements that are aligned in every array, or calls of single(i).
template <typename PackFn, typename SingleFn>
BRIGADE_INLINE void ForThread(int64_t size, PackLayout layout, int64_t tile, int thread,
                              const PackFn& pack, const SingleFn& single) {
  if (layout.vector) {
    const int64_t first = tile * kGpuTile + int64_t{thread} * kPackSize - layout.shift;
    if (first >= 0 && first + kPackSize <= size) {
      pack(first);
    } else {
      for (int64_t i = first < 0 ? 0 : first; i < first + kPackSize && i < size; ++i) single(i);
    }
  } else {
    for (int j = 0; j < kPackSize; ++j) {
      const int64_t i = tile * kGpuTile + int64_t{j} * kTileThreads + thread;
      if (i < size) single(i);
    }
  }
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_INTERNAL_GPU_TILE_H_
