#ifndef BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_MATH_H_
#define BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_MATH_H_

// Low-rank factors of matrices, for CUDA, SIMD and scalar code alike: the formulas, and the order
// of each sum, which is the same on all processors.
//
// Sums     Terms enter lanes in ascending order, term i lane i modulo their number, each by one fma
//          from +0. Then halves: lane l takes lane l + n/2, of n lanes, until there is one.
// Factors  Column by column: column k of a factor of n rows is [k * n, (k + 1) * n).

#include <cstdint>

#include "brigade/precision/host_device.h"
#include "brigade/precision/rounding.h"

namespace brigade::kernels {

// A tall matrix whose columns become orthonormal. Device memory.
struct OrthogonalizeSegment {
  // [columns][rows], column by column.
  float* matrix;
  int64_t rows;
  // At most kMaxLowRank.
  int32_t columns;
};

// A matrix and its factors, M = P Q^T of a low rank. Device memory.
struct LowRankSegment {
  // [rows][columns], row by row.
  float* matrix;
  // [rank][rows].
  float* p;
  // [rank][columns].
  float* q;
  // [rows][columns]: P Q^T, of LowRankRestore alone.
  float* product;
  // [LowRankWorkspaceSize(rows, columns, rank)], of LowRankColumns alone; may be null where that
  // is 0.
  float* workspace;
  int64_t rows;
  int64_t columns;
  // At most kMaxLowRank.
  int32_t rank;
};

inline constexpr int kMaxLowRank = 128;

// The lanes of a dot product of columns, which are double: products are exact there.
inline constexpr int kDotLanes = 512;
// The lanes of a row of M with a column of Q: a register of AVX-512, half a warp.
inline constexpr int kRowLanes = 16;
// The rows whose terms of M^T P are one sum, without lanes; these are added in ascending order.
inline constexpr int64_t kRowTile = 256;

BRIGADE_HOST_DEVICE constexpr int64_t RowTiles(int64_t rows) {
  return (rows + kRowTile - 1) / kRowTile;
}

// How many floats LowRankColumns needs to work in: the sums of tiles, if there are several.
BRIGADE_HOST_DEVICE constexpr int64_t LowRankWorkspaceSize(int64_t rows, int64_t columns,
                                                           int64_t rank) {
  return rows <= kRowTile ? 0 : RowTiles(rows) * columns * rank;
}

BRIGADE_INLINE double AddProduct(double lane, float x, float y) {
  return precision::Fma(static_cast<double>(x), static_cast<double>(y), lane);
}

// What a column is divided by. Its norm alone would make NaN of zeros.
BRIGADE_INLINE double Denominator(double sum_of_squares, double epsilon) {
  return precision::Add(precision::Sqrt(sum_of_squares), epsilon);
}

BRIGADE_INLINE float Normalized(float x, double denominator) {
  return static_cast<float>(precision::Div(static_cast<double>(x), denominator));
}

// x without its part along a column of length 1; `along` is their dot product.
BRIGADE_INLINE float Without(float x, float along, float column) {
  return precision::Fma(-along, column, x);
}

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_MATH_H_
