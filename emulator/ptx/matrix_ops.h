#ifndef BRIGADE_EMULATOR_PTX_MATRIX_OPS_H_
#define BRIGADE_EMULATOR_PTX_MATRIX_OPS_H_

// Handlers of mma.

#include <bit>
#include <cstddef>
#include <cstdint>

#include "brigade/emulator/ptx/arithmetic.h"
#include "brigade/emulator/ptx/convert_ops.h"
#include "brigade/emulator/ptx/module.h"
#include "brigade/emulator/ptx/warp.h"

namespace brigade::emulator {

// What the registers of a and b hold: `kParts` numbers each.
struct HalfParts {
  static constexpr int kParts = 2;
  static float Read(uint64_t bits, int part) {
    return HalfFormat::Read(bits >> (16 * part) & 0xffff);
  }
};
struct BFloat16Parts {
  static constexpr int kParts = 2;
  static float Read(uint64_t bits, int part) {
    return BFloat16Format::Read(bits >> (16 * part) & 0xffff);
  }
};
// The lowest 13 bits of a float are not looked at.
struct Tf32Parts {
  static constexpr int kParts = 1;
  static float Read(uint64_t bits, int) { return FromBits<float>(bits & ~uint64_t{0x1fff}); }
};

// d = a b + c: d and c have 16 rows and 8 columns of fp32, a has kDepth columns and b as many rows.
// Each product is exact, and each element is summed in double, c first, then by ascending column of
// a, and rounded once. PTX leaves order and rounding open.
//
// Lane 4 g + t has, in its registers of
//   a     rows g, g + 8, g, g + 8; columns from kParts * t on, the second pair 4 * kParts behind;
//   b     column g; rows as the columns of a;
//   c, d  row g, columns 2 t and 2 t + 1, and the same of row g + 8.
// Source: "Matrix Fragments for mma" of the PTX ISA.
template <typename Parts, int kDepth>
void MultiplyMatrices(Warp& warp, const Instruction& it) {
  constexpr int kRows = 16, kColumns = 8, kParts = Parts::kParts, kHalf = 4 * kParts;
  constexpr size_t kOfA = 2 * kDepth / kHalf, kOfB = kDepth / kHalf, kOfC = 4;
  double a[kRows][kDepth], b[kDepth][kColumns], sum[kRows][kColumns];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (size_t r = 0; r < kOfA; ++r) {
      const uint64_t bits = warp.lanes(it.operands[kOfC + r])[lane];
      const int column = static_cast<int>(r / 2) * kHalf + kParts * t;
      for (int part = 0; part < kParts; ++part) {
        a[g + 8 * static_cast<int>(r % 2)][column + part] = Parts::Read(bits, part);
      }
    }
    for (size_t r = 0; r < kOfB; ++r) {
      const uint64_t bits = warp.lanes(it.operands[kOfC + kOfA + r])[lane];
      const int row = static_cast<int>(r) * kHalf + kParts * t;
      for (int part = 0; part < kParts; ++part) b[row + part][g] = Parts::Read(bits, part);
    }
    for (size_t r = 0; r < kOfC; ++r) {
      const uint64_t bits = warp.lanes(it.operands[kOfC + kOfA + kOfB + r])[lane];
      sum[g + 8 * static_cast<int>(r / 2)][2 * t + static_cast<int>(r % 2)] = FromBits<float>(bits);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kDepth; ++k) {
      for (int column = 0; column < kColumns; ++column) {
        sum[row][column] += a[row][k] * b[k][column];
      }
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (size_t r = 0; r < kOfC; ++r) {
      const double value =
          sum[lane / 4 + 8 * static_cast<int>(r / 2)][2 * (lane % 4) + static_cast<int>(r % 2)];
      warp.lanes(it.operands[r])[lane] = ToBits(Canonical(static_cast<float>(value)));
    }
  }
}

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_MATRIX_OPS_H_
