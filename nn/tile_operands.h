#ifndef BRIGADE_NN_TILE_OPERANDS_H_
#define BRIGADE_NN_TILE_OPERANDS_H_

// What the products of tile_product.h multiply, and how tiles of an array are packed for them.

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "brigade/kernels/simd.h"
#include "brigade/nn/functions.h"
#include "brigade/nn/tile_product.h"
#include "brigade/precision/float16.h"

// Of GCC alone: clang refuses the instructions in functions compiled for other processors.
#if defined(__x86_64__) && !defined(__clang__)
#define BRIGADE_NN_PAIRS
#endif

namespace brigade::nn {

// Numbers are converted to Wide<T> when they are packed. A fused multiply-add where the processor
// has it.
template <typename T, kernels::SimdTarget kTarget>
struct WideOperands : Vectors<Wide<T>, kTarget> {
  using Base = Vectors<Wide<T>, kTarget>;
  using typename Base::V;
  using Word = Wide<T>;
  using Number = T;
  // Numbers in a word.
  static constexpr int kDepth = 1;

  BRIGADE_INLINE static void MultiplyAdd(V& sum, const Word* a, const Word* b) {
    sum += *a * Base::Load(b);
  }
};

// Pairs of bfloat16 as they are, by the instructions of AVX512_BF16 (Zen 4, Cooper Lake and later):
// sum + a.low b.low + a.high b.high, where each addition is a fused multiply-add that rounds to
// nearest. Subnormal numbers, of bfloat16 or in the sum, count as 0. Assembly, because the
// intrinsics are for functions compiled for that target alone; clang says so of assembly as well.
struct PairOperands : Vectors<float, kernels::SimdTarget::kAvx512> {
  using Word = uint32_t;
  using Number = precision::BFloat16;
  static constexpr int kDepth = 2;

  // Whether they may be used.
  static bool Available() {
#ifdef BRIGADE_NN_PAIRS
    return kernels::SimdMultipliesBFloat16();
#else
    return false;
#endif
  }

  BRIGADE_INLINE static void MultiplyAdd(V& sum, const Word* a, const Word* b) {
#ifdef BRIGADE_NN_PAIRS
    asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(LoadBits(b)), "m"(*a));
#else
    (void)sum, (void)a, (void)b;
#endif
  }

  // 32 numbers, those of `low` first.
  BRIGADE_INLINE static U Round(V low, V high) {
    U words = {};
#ifdef BRIGADE_NN_PAIRS
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(words) : "v"(low), "v"(high));
#else
    (void)low, (void)high;
#endif
    return words;
  }
  // Pairs of a number of `first` and one of `second`.
  BRIGADE_INLINE static U RoundToPairs(V first, V second) {
    typedef uint16_t Halves __attribute__((vector_size(64)));
    const Halves all = __builtin_bit_cast(Halves, Round(first, second));
    return __builtin_bit_cast(
        U, __builtin_shufflevector(all, all, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                   8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
  }
};

// `rows` rows of `width` numbers in an array whose rows are `leading` apart.
template <typename T>
struct RowsOf {
  T* data;
  int64_t leading, rows, width;
};

// Words of a row of `width` numbers, before padding.
template <typename Op>
BRIGADE_INLINE int64_t WordsOf(int64_t width) {
  return (width + Op::kDepth - 1) / Op::kDepth;
}

// Rows of packed matrices are padded to as many words: whole vectors of every instruction set.
inline constexpr int64_t kPadding = 16;

BRIGADE_INLINE constexpr int64_t RoundUp(int64_t size, int64_t unit) {
  return (size + unit - 1) / unit * unit;
}

// to[r, word] for products that add up over a row; rows up to `padded` are 0, and so is what is
// between the row's end and `stride`.
template <typename Op>
BRIGADE_INLINE void PackRows(RowsOf<const typename Op::Number> from, int64_t padded,
                             typename Op::Word* to, int64_t stride) {
  using Word = typename Op::Word;
  for (int64_t r = 0; r < from.rows; ++r) {
    const typename Op::Number* const in = from.data + r * from.leading;
    Word* const out = to + r * stride;
    int64_t c = 0;
    if constexpr (Op::kDepth == 1) {
      BRIGADE_SIMD_LOOP
      for (; c < from.width; ++c) out[c] = Widen(in[c]);
    } else {
      std::memcpy(out, in, static_cast<size_t>(from.width / 2) * sizeof(Word));
      c = from.width / 2;
      if (from.width % 2 != 0) out[c++] = in[from.width - 1].bits;
    }
    for (; c < stride; ++c) out[c] = 0;
  }
  std::memset(to + from.rows * stride, 0,
              static_cast<size_t>((padded - from.rows) * stride) * sizeof(Word));
}

// to[word, column] for products that add up over the rows, of which a word has kDepth.
template <typename Op>
BRIGADE_INLINE void PackColumns(RowsOf<const typename Op::Number> from, int64_t padded,
                                typename Op::Word* to, int64_t stride) {
  if constexpr (Op::kDepth == 1) {
    PackRows<Op>(from, padded, to, stride);
  } else {
    for (int64_t r = 0; r < from.rows; r += 2) {
      const precision::BFloat16* const in = from.data + r * from.leading;
      // The row that is missing behind the last one is 0.
      const bool two = r + 1 < from.rows;
      const precision::BFloat16* const next = two ? in + from.leading : in;
      const uint32_t mask = two ? 0xffffu : 0u;
      uint32_t* const out = to + r / 2 * stride;
      BRIGADE_SIMD_LOOP
      for (int64_t c = 0; c < from.width; ++c) {
        out[c] = in[c].bits | (next[c].bits & mask) << 16;
      }
      for (int64_t c = from.width; c < stride; ++c) out[c] = 0;
    }
    const int64_t packed = (from.rows + 1) / 2;
    std::memset(to + packed * stride, 0,
                static_cast<size_t>((padded / 2 - packed) * stride) * sizeof(uint32_t));
  }
}

namespace internal {

// The half of the elements whose lane lacks the bit kStep keeps its place, the other trades places
// between rows that are kStep apart.
template <typename V, int kLanes, int kStep, bool kHigh, int... kLane>
BRIGADE_INLINE V Trade(V low, V high, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(low, high,
                                 (kHigh ? ((kLane & kStep) ? kLanes + kLane : kLane + kStep)
                                        : ((kLane & kStep) ? kLanes + kLane - kStep : kLane))...);
}

template <typename Op, int kStep, typename V>
BRIGADE_INLINE void TransposeStep(V* rows) {
  using Lanes = std::make_integer_sequence<int, Op::kLanes>;
  if constexpr (kStep > 0) {
#pragma GCC unroll 16
    for (int r = 0; r < Op::kLanes; ++r) {
      if ((r & kStep) != 0) continue;
      const auto low = Trade<V, Op::kLanes, kStep, false>(rows[r], rows[r + kStep], Lanes());
      const auto high = Trade<V, Op::kLanes, kStep, true>(rows[r], rows[r + kStep], Lanes());
      rows[r] = low;
      rows[r + kStep] = high;
    }
    TransposeStep<Op, kStep / 2>(rows);
  }
}

}  // namespace internal

// to[word, r], for products that add up over a row: the transpose of PackRows. `padded` is a
// multiple of kLanes; `block` is room for kLanes rows of `stride` words.
template <typename Op>
BRIGADE_INLINE void PackTransposed(RowsOf<const typename Op::Number> from, int64_t padded,
                                   typename Op::Word* to, int64_t to_stride,
                                   typename Op::Word* block, int64_t stride) {
  using Word = typename Op::Word;
  typedef Word V __attribute__((vector_size(Op::kLanes * sizeof(Word)), may_alias));
  for (int64_t r = 0; r < padded; r += Op::kLanes) {
    RowsOf<const typename Op::Number> some = from;
    some.data += r * from.leading;
    some.rows = from.rows - r < 0 ? 0 : from.rows - r > Op::kLanes ? Op::kLanes : from.rows - r;
    PackRows<Op>(some, Op::kLanes, block, stride);
    for (int64_t c = 0; c < stride; c += Op::kLanes) {
      V rows[Op::kLanes];
      for (int i = 0; i < Op::kLanes; ++i) {
        rows[i] = *reinterpret_cast<const V*>(block + i * stride + c);
      }
      internal::TransposeStep<Op, Op::kLanes / 2>(rows);
      for (int i = 0; i < Op::kLanes; ++i) {
        *reinterpret_cast<V*>(to + (c + i) * to_stride + r) = rows[i];
      }
    }
  }
}

// 2^x to about one unit in the last place, for x < 128 (1024 for double); 0 below the normal
// numbers; NaN stays. Source: Cephes, exp2f.c; for double the Taylor series.
template <typename Op>
BRIGADE_INLINE typename Op::V Exp2(typename Op::V x) {
  using V = typename Op::V;
  using W = typename Op::W;
  using U = typename Op::U;
  constexpr bool kFloat = std::is_same_v<W, float>;
  constexpr W kLowest = kFloat ? W(-127) : W(-1023);
  // Adding it rounds to an integer, which then is in the low bits, with the exponent's bias added.
  constexpr W kMagic = kFloat ? W(12582912 + 127) : W(6755399441055744.0 + 1023);
  constexpr int kFraction = kFloat ? 23 : 52;
  const V lowest = V{} + kLowest;
  x = x < lowest ? lowest : x;
  const V shifted = x + kMagic;
  const V r = x - (shifted - kMagic);
  V sum;
  if constexpr (kFloat) {
    sum = V{} + 1.535336188319500e-4f;
    sum = sum * r + 1.339887440266574e-3f;
    sum = sum * r + 9.618437357674640e-3f;
    sum = sum * r + 5.550332471162809e-2f;
    sum = sum * r + 2.402264791363012e-1f;
    sum = sum * r + 6.931472028550421e-1f;
    sum = sum * r + 1.0f;
  } else {
    // (r ln 2)^14 / 14! is below 2^-57.
    const V t = r * 0.693147180559945309417;
    sum = V{} + 1.0 / 6227020800;
    for (const double reciprocal :
         {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
          1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0}) {
      sum = sum * t + reciprocal;
    }
  }
  return sum * __builtin_bit_cast(V, __builtin_bit_cast(U, shifted) << kFraction);
}

}  // namespace brigade::nn

#endif  // BRIGADE_NN_TILE_OPERANDS_H_
