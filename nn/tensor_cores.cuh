#ifndef BRIGADE_NN_TENSOR_CORES_CUH_
#define BRIGADE_NN_TENSOR_CORES_CUH_

// Products of tiles of 16-bit numbers on tensor cores, for sm_80 and later: tiles in shared memory,
// copies into them, and a warp's products with sums in fp32.
//
// A warp has the 16 rows of a product in parts: lane 4 g + t holds columns 8 n + 2 t and the next
// of rows g (elements 0, 1) and g + 8 (elements 2, 3) in sum[n].
// Source: "Matrix Fragments for mma.m16n8k16" of the PTX ISA.

#include <cstdint>
#include <type_traits>

#include "brigade/nn/warp.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// Of a warp's product, and of what ldmatrix and cp.async move at once.
inline constexpr int kWarpRows = 16, kChunkBytes = 16, kChunkElements = 8;

// Rows of kColumns numbers in shared memory, by the address of the first. A row is 16 bytes longer
// than its numbers, so that the 8 rows that ldmatrix reads at once lie in different banks: the
// length is an odd number of 16 bytes.
template <int kColumns>
struct Tile {
  static constexpr int kRowBytes = 2 * kColumns + kChunkBytes;
  static_assert(kRowBytes / kChunkBytes % 2 == 1);
  static constexpr int Bytes(int rows) { return rows * kRowBytes; }

  uint32_t address;

  __device__ uint32_t At(int row, int column) const {
    return address + static_cast<uint32_t>(row * kRowBytes + 2 * column);
  }
};

__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Begins to copy 4 or 16 bytes, of which `read` are read; zeros are written for the others.
template <int kBytes>
__device__ void CopyAsync(uint32_t to, const void* from, int read) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(read)
                 : "memory");
  } else {
    static_assert(kBytes == 4);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(read)
                 : "memory");
  }
}
// Waits for all copies that the thread has begun. Others see them behind a barrier.
__device__ inline void AwaitCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Begins to copy rows that are `stride` numbers apart: kRows, of which `rows` (1 or more) are
// there; the others become zeros. By all kThreads threads of the block.
template <int kThreads, int kRows, int kColumns, typename T>
__device__ void CopyRows(Tile<kColumns> to, const T* from, int64_t stride, int64_t rows) {
  constexpr int kChunks = kColumns / kChunkElements;
  static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll
  for (int first = 0; first < kRows * kChunks; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const int row = i / kChunks, column = i % kChunks * kChunkElements;
    const bool is_there = row < rows;
    CopyAsync<kChunkBytes>(to.At(row, column), from + (is_there ? row * stride : 0) + column,
                           is_there ? kChunkBytes : 0);
  }
}

// Four matrices of 8 by 8, whose rows start at the addresses of lanes 0 to 7, 8 to 15, ...
template <bool kTransposed>
__device__ void LoadMatrices(uint32_t address, uint32_t (&matrices)[4]) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(address)
                 : "memory");
  }
}

// sum += a b for 16 rows and columns of a and 16 rows and 8 columns of b.
template <typename T>
__device__ void MultiplyAdd(const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float (&sum)[4]) {
  if constexpr (std::is_same_v<T, precision::Half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same_v<T, precision::BFloat16>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Two numbers rounded to T, the first in the lower half.
template <typename T>
__device__ uint32_t Pack(float first, float second) {
  uint32_t packed;
  if constexpr (std::is_same_v<T, precision::Half>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  } else {
    static_assert(std::is_same_v<T, precision::BFloat16>);
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  }
  return packed;
}

// sum += a b^T: kWarpRows rows of a from `row` on, all kRows rows of b.
template <typename T, int kColumns, int kRows>
__device__ void MultiplyByTransposed(Tile<kColumns> a, int row, Tile<kColumns> b,
                                     float (&sum)[kRows / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const uint32_t of_a = a.At(row + lane % 16, lane / 16 * 8);
  const uint32_t of_b = b.At(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
  for (int k = 0; k < kColumns; k += 16) {
    uint32_t left[4];
    LoadMatrices<false>(of_a + 2 * k, left);
#pragma unroll
    for (int n = 0; n < kRows; n += 16) {
      uint32_t right[4];
      LoadMatrices<false>(of_b + n * Tile<kColumns>::kRowBytes + 2 * k, right);
      MultiplyAdd<T>(left, right[0], right[1], sum[n / 8]);
      MultiplyAdd<T>(left, right[2], right[3], sum[n / 8 + 1]);
    }
  }
}

// sum += a b: a in registers as a product left it, rounded to T; b has as many rows as a columns.
template <typename T, int kColumns, int kRows>
__device__ void MultiplyBy(const float (&a)[kRows / 8][4], Tile<kColumns> b,
                           float (&sum)[kColumns / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const uint32_t of_b = b.At(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int k = 0; k < kRows; k += 16) {
    const float(&low)[4] = a[k / 8];
    const float(&high)[4] = a[k / 8 + 1];
    const uint32_t left[4] = {Pack<T>(low[0], low[1]), Pack<T>(low[2], low[3]),
                              Pack<T>(high[0], high[1]), Pack<T>(high[2], high[3])};
#pragma unroll
    for (int n = 0; n < kColumns; n += 16) {
      uint32_t right[4];
      LoadMatrices<true>(of_b + k * Tile<kColumns>::kRowBytes + 2 * n, right);
      MultiplyAdd<T>(left, right[0], right[1], sum[n / 8]);
      MultiplyAdd<T>(left, right[2], right[3], sum[n / 8 + 1]);
    }
  }
}

// Writes the warp's rows, rounded to T, to rows that are `stride` numbers apart, of which `rows`
// are there; by way of rows `row` and on of a tile that no other warp uses.
template <typename T, int kColumns>
__device__ void StoreRows(const float (&sum)[kColumns / 8][4], Tile<kColumns> by, int row, T* to,
                          int64_t stride, int64_t rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  // What other lanes have read there was read before.
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
    const uint32_t at = by.At(row + lane / 4, 8 * n + lane % 4 * 2);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(Pack<T>(sum[n][0], sum[n][1]))
                 : "memory");
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at + 8 * Tile<kColumns>::kRowBytes),
                 "r"(Pack<T>(sum[n][2], sum[n][3]))
                 : "memory");
  }
  __syncwarp();
  constexpr int kChunks = kColumns / kChunkElements;
#pragma unroll
  for (int first = 0; first < kWarpRows * kChunks; first += kWarpSize) {
    const int r = (first + lane) / kChunks, column = (first + lane) % kChunks * kChunkElements;
    // The compiler would write the four words one by one.
    uint32_t chunk[4];
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(chunk[0]), "=r"(chunk[1]), "=r"(chunk[2]), "=r"(chunk[3])
                 : "r"(by.At(row + r, column))
                 : "memory");
    if (r < rows) {
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(
                       __cvta_generic_to_global(to + r * stride + column)),
                   "r"(chunk[0]), "r"(chunk[1]), "r"(chunk[2]), "r"(chunk[3])
                   : "memory");
    }
  }
}

// The same in fp32, added to what is there if `adds`; four lanes write 32 bytes of a row at once.
template <int kColumns>
__device__ void StoreFloatRows(const float (&sum)[kColumns / 8][4], float* to, int64_t stride,
                               int64_t rows, bool adds) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = lane / 4 + 8 * h;
    if (r >= rows) continue;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      auto* const at = reinterpret_cast<float2*>(to + r * stride + 8 * n + lane % 4 * 2);
      const float2 before = adds ? *at : float2{0, 0};
      *at = {before.x + sum[n][2 * h], before.y + sum[n][2 * h + 1]};
    }
  }
}

// 2^x to two units in the last place; 0 where that is below the smallest normal number.
__device__ inline float Exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace brigade::nn

#endif  // BRIGADE_NN_TENSOR_CORES_CUH_
