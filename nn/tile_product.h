#ifndef BRIGADE_NN_TILE_PRODUCT_H_
#define BRIGADE_NN_TILE_PRODUCT_H_

// Vectors, and products of small packed matrices whose sums stay in registers. Every function melts
// into one that is compiled for the instruction set `kTarget`.
//
// A matrix lies in words: W, a number of the type in which sums are made, or a pair of bfloat16,
// neighbours in the direction in which a product adds up, for the instruction that multiplies
// pairs. Words are packed by tile_operands.h, padded so that blocks are whole.

#include <cstdint>
#include <type_traits>

#include "brigade/kernels/simd.h"
#include "brigade/precision/host_device.h"

namespace brigade::nn {

// Bytes of a vector; rows and vectors of the block of sums, which the registers hold beside the
// operands. 8 x 2: best of 4 x 4, 5 x 4, 6 x 4, 8 x 2, 12 x 2 and 4 x 6 on Zen 5 for pairs (350
// GFLOP/s of 495, 4 x 4 has 313), as good as any for float (202 of 247). Others are untuned.
template <kernels::SimdTarget kTarget>
struct Registers {
  static constexpr int kBytes = 16, kRows = 4, kVectors = 2;
};
template <>
struct Registers<kernels::SimdTarget::kAvx2> {
  static constexpr int kBytes = 32, kRows = 4, kVectors = 2;
};
template <>
struct Registers<kernels::SimdTarget::kAvx512> {
  static constexpr int kBytes = 64, kRows = 8, kVectors = 2;
};

template <typename E, int kBytes>
struct VectorOf {
  typedef E Type __attribute__((vector_size(kBytes), may_alias));
};

template <typename Number, kernels::SimdTarget kTarget>
struct Vectors {
  static constexpr int kRows = Registers<kTarget>::kRows, kVectors = Registers<kTarget>::kVectors;
  static constexpr int kLanes = Registers<kTarget>::kBytes / static_cast<int>(sizeof(Number));
  // Columns of a block of sums.
  static constexpr int kColumns = kVectors * kLanes;
  using W = Number;
  using Bits = std::conditional_t<sizeof(W) == 4, uint32_t, uint64_t>;
  using V = typename VectorOf<W, Registers<kTarget>::kBytes>::Type;
  using U = typename VectorOf<Bits, Registers<kTarget>::kBytes>::Type;

  BRIGADE_INLINE static V Load(const W* from) { return *reinterpret_cast<const V*>(from); }
  BRIGADE_INLINE static void Store(W* to, V value) { *reinterpret_cast<V*>(to) = value; }
  BRIGADE_INLINE static U LoadBits(const Bits* from) { return *reinterpret_cast<const U*>(from); }
  BRIGADE_INLINE static void StoreBits(Bits* to, U value) { *reinterpret_cast<U*>(to) = value; }
  // 0, 1, 2, ...
  BRIGADE_INLINE static V Lanes() {
    V lanes = {};
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = static_cast<W>(lane);
    return lanes;
  }
  // b if either is NaN.
  BRIGADE_INLINE static V Max(V a, V b) { return a > b ? a : b; }
};

// left(m, k) = data[m * row + k * step].
template <typename Word>
struct Left {
  const Word* data;
  int64_t row, step;
};

// right(k, n) = data[k * step + n]; rows are aligned to vectors.
template <typename Word>
struct Right {
  const Word* data;
  int64_t step;
};

// A block of kVectors vectors: finish(sums) has the sum over k < `steps` of left(m, k) right(k, n),
// in ascending order, in sums[kRows][kVectors].
template <typename Op, int kVectors, typename Finish>
BRIGADE_INLINE void MultiplyBlock(Left<typename Op::Word> left, Right<typename Op::Word> right,
                                  int64_t steps, const Finish& finish) {
  typename Op::V sums[Op::kRows][kVectors] = {};
  const typename Op::Word* a = left.data;
  const typename Op::Word* b = right.data;
  for (int64_t k = 0; k < steps; ++k) {
#pragma GCC unroll 8
    for (int m = 0; m < Op::kRows; ++m) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        Op::MultiplyAdd(sums[m][v], a + m * left.row, b + v * Op::kLanes);
      }
    }
    a += left.step;
    b += right.step;
  }
  finish(sums);
}

// The same from column `column` of `right` on, for as many of kVectors vectors as `columns` columns
// have from there.
template <typename Op, typename Finish>
BRIGADE_INLINE void Multiply(Left<typename Op::Word> left, Right<typename Op::Word> right,
                             int64_t column, int64_t columns, int64_t steps, const Finish& finish) {
  right.data += column;
  static_assert(Op::kVectors == 2);
  if (columns - column > Op::kLanes) {
    MultiplyBlock<Op, 2>(left, right, steps, finish);
  } else {
    MultiplyBlock<Op, 1>(left, right, steps, finish);
  }
}

}  // namespace brigade::nn

#endif  // BRIGADE_NN_TILE_PRODUCT_H_
