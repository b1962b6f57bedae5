#ifndef BRIGADE_KERNELS_GRAD_CHECK_SUM_SQUARES_AVX512_H_
#define BRIGADE_KERNELS_GRAD_CHECK_SUM_SQUARES_AVX512_H_

// grad_check's sum of squares in AVX-512's registers: 32 vectors of a row, read in order, add their
// squares to 32 vectors of sums. 31 of those are registers; the last one's place is taken by what
// is loaded, and it lies in memory. Of a row that is not whole masks load what there is: through a
// copy with zeros behind it, lists of tensors lost a quarter of the speed. Then the sums meet,
// while they are registers.
//
// In assembly, because compilers keep four of the sums on the stack (g++ 12), or move each to the
// next register in every row (clang 19 and 21), and the processor follows a stream less well where
// the loop beside it loads and stores: 0.80 of a plain read for g++, 0.94 for this. The prefetch of
// every other line leads it from page to page. From 16 bits the limit is the conversion to double,
// 4 elements a cycle on a Zen 4, from memory as in the first-level cache (docs/decisions/0020).

#ifdef __x86_64__

#include <algorithm>
#include <cstdint>

#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/precision/float16.h"

namespace brigade::kernels {

// Vector \i of a row to zmm31, widened; each type prefetches a line of two. Of the last row's rest
// only the elements are loaded that the next bits of `mask` say.
// clang-format off
#define BRIGADE_LOAD_FLOATS                                      \
  ".if (\\i & 3) == 0\n"                                         \
  "  prefetcht1 4096+32*\\i(%[grad])\n"                          \
  ".endif\n"                                                     \
  "vcvtps2pd 32*\\i(%[grad]), %%zmm31\n"
#define BRIGADE_LOAD_SOME_FLOATS                                 \
  "kmovd %k[mask], %%k2\n"                                       \
  "shr $8, %[mask]\n"                                            \
  "vcvtps2pd 32*\\i(%[grad]), %%zmm31%{%%k2%}%{z%}\n"

#define BRIGADE_PREFETCH_16_BITS                                 \
  ".if (\\i & 7) == 0\n"                                         \
  "  prefetcht1 4096+16*\\i(%[grad])\n"                          \
  ".endif\n"
#define BRIGADE_LOAD_HALVES                                      \
  BRIGADE_PREFETCH_16_BITS                                       \
  "vcvtph2ps 16*\\i(%[grad]), %%ymm31\n"                         \
  "vcvtps2pd %%ymm31, %%zmm31\n"
#define BRIGADE_LOAD_SOME_HALVES                                 \
  "kmovd %k[mask], %%k2\n"                                       \
  "shr $8, %[mask]\n"                                            \
  "vcvtph2ps 16*\\i(%[grad]), %%ymm31%{%%k2%}%{z%}\n"            \
  "vcvtps2pd %%ymm31, %%zmm31\n"

// bfloat16 is the upper half of a float. Of two vectors of a row the first one has the elements
// with even index of both, the second one those with odd index, which k1 selects.
#define BRIGADE_LOAD_BFLOAT16S                                   \
  BRIGADE_PREFETCH_16_BITS                                       \
  ".if \\i & 1\n"                                                \
  "  vmovdqu16 32*(\\i>>1)(%[grad]), %%ymm31%{%%k1%}%{z%}\n"     \
  ".else\n"                                                      \
  "  vpslld $16, 32*(\\i>>1)(%[grad]), %%ymm31\n"                \
  ".endif\n"                                                     \
  "vcvtps2pd %%ymm31, %%zmm31\n"
#define BRIGADE_LOAD_SOME_BFLOAT16S                              \
  "kmovd %k[mask], %%k2\n"                                       \
  ".if \\i & 1\n"                                                \
  "  kandd %%k1, %%k2, %%k2\n"                                   \
  "  shr $16, %[mask]\n"                                         \
  ".endif\n"                                                     \
  "vmovdqu16 32*(\\i>>1)(%[grad]), %%ymm31%{%%k2%}%{z%}\n"       \
  ".if (\\i & 1) == 0\n"                                         \
  "  vpslld $16, %%ymm31, %%ymm31\n"                             \
  ".endif\n"                                                     \
  "vcvtps2pd %%ymm31, %%zmm31\n"

// The assembler repeats `what` for \i from 0 to 30.
#define BRIGADE_REGISTERS(what)                                                                  \
  ".irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30\n"  \
  what                                                                                           \
  ".endr\n"

// One row: to register \i, and to the vector in memory.
#define BRIGADE_ROW(load)                                                                        \
  BRIGADE_REGISTERS(load "vfmadd231pd %%zmm31, %%zmm31, %%zmm\\i\n")                             \
  ".irp i,31\n" load ".endr\n"                                                                   \
  "vfmadd213pd (%[memory]), %%zmm31, %%zmm31\n"                                                  \
  "vmovupd %%zmm31, (%[memory])\n"

// The next 64 bits for the next 8 vectors; none: there are no more elements.
#define BRIGADE_NEXT_MASK                                                                        \
  ".if (\\i & 7) == 0\n"                                                                         \
  "  mov 8*(\\i>>3)(%[masks]), %[mask]\n"                                                        \
  "  test %[mask], %[mask]\n"                                                                    \
  "  jz 3f\n"                                                                                    \
  ".endif\n"

// Adds the lanes of register `sums` by halving. (zmm31 is free.)
#define BRIGADE_HALVE(sums)                                                                      \
  "vextractf64x4 $1, %%zmm" #sums ", %%ymm31\n"                                                  \
  "vaddpd %%ymm31, %%ymm" #sums ", %%ymm" #sums "\n"                                             \
  "vextractf64x2 $1, %%ymm" #sums ", %%xmm31\n"                                                  \
  "vaddpd %%xmm31, %%xmm" #sums ", %%xmm" #sums "\n"                                             \
  "vunpckhpd %%xmm" #sums ", %%xmm" #sums ", %%xmm31\n"                                          \
  "vaddsd %%xmm31, %%xmm" #sums ", %%xmm" #sums "\n"
#define BRIGADE_MEET BRIGADE_ADD(1, 0) BRIGADE_HALVE(0)
#define BRIGADE_MEET_IN_PARTS BRIGADE_HALVE(0) BRIGADE_HALVE(1) "vaddsd %%xmm1, %%xmm0, %%xmm0\n"

#define BRIGADE_ADD(from, to) "vaddpd %%zmm" #from ", %%zmm" #to ", %%zmm" #to "\n"

#define BRIGADE_SUM_ROWS(load, load_some, meet)                                                  \
  double memory[8];                                                                              \
  double sum;                                                                                    \
  uint64_t mask;                                                                                 \
  asm volatile(                                                                                  \
      "kmovd %[odd], %%k1\n"                                                                     \
      BRIGADE_REGISTERS("vpxorq %%zmm\\i, %%zmm\\i, %%zmm\\i\n")                                 \
      "vmovupd %%zmm0, (%[memory])\n"                                                            \
      "test %[rows], %[rows]\n"                                                                  \
      "jz 2f\n"                                                                                  \
      "1:\n"                                                                                     \
      BRIGADE_ROW(load)                                                                          \
      "add %[bytes], %[grad]\n"                                                                  \
      "dec %[rows]\n"                                                                            \
      "jnz 1b\n"                                                                                 \
      "2:\n"                                                                                     \
      BRIGADE_ROW(BRIGADE_NEXT_MASK load_some)                                                   \
      "3:\n"                                                                                     \
      "vmovupd (%[memory]), %%zmm31\n"                                                           \
      BRIGADE_ADD(16, 0) BRIGADE_ADD(17, 1) BRIGADE_ADD(18, 2) BRIGADE_ADD(19, 3)                \
      BRIGADE_ADD(20, 4) BRIGADE_ADD(21, 5) BRIGADE_ADD(22, 6) BRIGADE_ADD(23, 7)                \
      BRIGADE_ADD(24, 8) BRIGADE_ADD(25, 9) BRIGADE_ADD(26, 10) BRIGADE_ADD(27, 11)              \
      BRIGADE_ADD(28, 12) BRIGADE_ADD(29, 13) BRIGADE_ADD(30, 14) BRIGADE_ADD(31, 15)            \
      BRIGADE_ADD(8, 0) BRIGADE_ADD(9, 1) BRIGADE_ADD(10, 2) BRIGADE_ADD(11, 3)                  \
      BRIGADE_ADD(12, 4) BRIGADE_ADD(13, 5) BRIGADE_ADD(14, 6) BRIGADE_ADD(15, 7)                \
      BRIGADE_ADD(4, 0) BRIGADE_ADD(5, 1) BRIGADE_ADD(6, 2) BRIGADE_ADD(7, 3)                    \
      BRIGADE_ADD(2, 0) BRIGADE_ADD(3, 1)                                                        \
      meet                                                                                       \
      "vmovsd %%xmm0, %[sum]\n"                                                                  \
      : [grad] "+r"(grad), [rows] "+r"(rows), [mask] "=&r"(mask), [sum] "=m"(sum)                \
      : [memory] "r"(memory), [masks] "r"(masks), [odd] "r"(0xaaaaaaaau),                          \
        [bytes] "i"(kGradLanes * sizeof(*grad))                                                  \
      : "memory", "cc", "k1", "k2", "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6",      \
        "zmm7", "zmm8", "zmm9", "zmm10", "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16",   \
        "zmm17", "zmm18", "zmm19", "zmm20", "zmm21", "zmm22", "zmm23", "zmm24", "zmm25",         \
        "zmm26", "zmm27", "zmm28", "zmm29", "zmm30", "zmm31");        \
  return sum
// clang-format on
#define BRIGADE_TARGET_ROWS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

namespace avx512 {

// The sum of the squares of `rows` rows of kGradLanes elements, and of the elements of one more for
// which `masks` has a bit, from the lowest on: of each lane in the order of rows, then of lanes by
// halving.
BRIGADE_TARGET_ROWS inline double SumRows(const float* grad, int64_t rows, const uint64_t* masks) {
  BRIGADE_SUM_ROWS(BRIGADE_LOAD_FLOATS, BRIGADE_LOAD_SOME_FLOATS, BRIGADE_MEET);
}
BRIGADE_TARGET_ROWS inline double SumRows(const precision::Half* grad, int64_t rows,
                                          const uint64_t* masks) {
  BRIGADE_SUM_ROWS(BRIGADE_LOAD_HALVES, BRIGADE_LOAD_SOME_HALVES, BRIGADE_MEET);
}
// The lanes with even index, then those with odd index, then both.
BRIGADE_TARGET_ROWS inline double SumRows(const precision::BFloat16* grad, int64_t rows,
                                          const uint64_t* masks) {
  BRIGADE_SUM_ROWS(BRIGADE_LOAD_BFLOAT16S, BRIGADE_LOAD_SOME_BFLOAT16S, BRIGADE_MEET_IN_PARTS);
}

// The sum of the squares of a tile, in the canonical order.
template <typename Grad>
double SumSquares(const Grad* grad, int64_t size) {
  uint64_t masks[kGradLanes / 64];
  int64_t rest = size % kGradLanes;
  for (uint64_t& mask : masks) {
    mask = rest >= 64 ? ~uint64_t{0} : (uint64_t{1} << std::max<int64_t>(rest, 0)) - 1;
    rest -= 64;
  }
  return SumRows(grad, size / kGradLanes, masks);
}

}  // namespace avx512

static_assert(kGradLanes == 32 * 8);

#undef BRIGADE_TARGET_ROWS
#undef BRIGADE_SUM_ROWS
#undef BRIGADE_ADD
#undef BRIGADE_MEET_IN_PARTS
#undef BRIGADE_MEET
#undef BRIGADE_HALVE
#undef BRIGADE_NEXT_MASK
#undef BRIGADE_ROW
#undef BRIGADE_REGISTERS
#undef BRIGADE_LOAD_SOME_BFLOAT16S
#undef BRIGADE_LOAD_BFLOAT16S
#undef BRIGADE_LOAD_SOME_HALVES
#undef BRIGADE_LOAD_HALVES
#undef BRIGADE_PREFETCH_16_BITS
#undef BRIGADE_LOAD_SOME_FLOATS
#undef BRIGADE_LOAD_FLOATS

}  // namespace brigade::kernels

#endif  // __x86_64__

#endif  // BRIGADE_KERNELS_GRAD_CHECK_SUM_SQUARES_AVX512_H_
