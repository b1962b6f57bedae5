// Muon on the CPU. Momenta and parameters: one pass over memory. Products: a thread makes a block
// of 128 x 128 sums, which stay in its caches, from strips of 256 terms that it lays side by side,
// so that the innermost loop reads one strip of each factor from the first levels.

#include "brigade/kernels/muon/muon_cpu.h"

#include <algorithm>

#include "brigade/kernels/internal/halve_lanes.h"
#include "brigade/kernels/internal/lanes.h"
#include "brigade/kernels/internal/update_range.h"
#include "brigade/kernels/muon/product_lanes.h"
#include "brigade/kernels/simd.h"

namespace brigade::kernels {
namespace {

// Of sums, and how many terms they take before the next strips: 128 KiB each and 64 of sums.
constexpr int64_t kBlock = 128;
constexpr int64_t kStrip = 256;

// Terms [first, first + terms) of up to kBlock rows of A, in panels of kRows rows: [panel][term]
// [kRows]; rows behind the last are zeros.
template <int kRows>
BRIGADE_INLINE void PackRows(const MuonProduct& p, int64_t row, int64_t first, int64_t terms,
                             int64_t rows, float* to) {
  for (int64_t panel = 0; panel < rows; panel += kRows, to += terms * kRows) {
    const int64_t count = std::min<int64_t>(kRows, rows - panel);
    const float* const from = p.a + (row + panel) * p.a_row + first * p.a_column;
    if (p.a_row == 1 && count == kRows) {
      for (int64_t t = 0; t < terms; ++t) {
        for (int r = 0; r < kRows; ++r) to[t * kRows + r] = from[t * p.a_column + r];
      }
      continue;
    }
    if (count < kRows) std::fill_n(to, terms * kRows, 0.0f);
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t t = 0; t < terms; ++t) to[t * kRows + r] = from[r * p.a_row + t * p.a_column];
    }
  }
}

// The same of columns of B: [panel][term][kColumns].
template <int kColumns>
BRIGADE_INLINE void PackColumns(const MuonProduct& p, int64_t column, int64_t first, int64_t terms,
                                int64_t columns, float* to) {
  for (int64_t panel = 0; panel < columns; panel += kColumns, to += terms * kColumns) {
    const int64_t count = std::min<int64_t>(kColumns, columns - panel);
    const float* const from = p.b + first * p.n + column + panel;
    if (count < kColumns) std::fill_n(to, terms * kColumns, 0.0f);
    for (int64_t t = 0; t < terms; ++t) {
      for (int64_t c = 0; c < count; ++c) to[t * kColumns + c] = from[t * p.n + c];
    }
  }
}

template <typename Lanes>
BRIGADE_INLINE void MakeBlock(Lanes lanes, const MuonProduct& p, int64_t row, int64_t column) {
  using Tile = ProductTile<Lanes>;
  static_assert(kBlock % Tile::kRows == 0 && kBlock % Tile::kColumns == 0);
  alignas(64) float sums[kBlock * kBlock];
  alignas(64) float a[kBlock * kStrip], b[kBlock * kStrip];
  const int64_t rows = std::min(kBlock, p.m - row);
  const int64_t columns = std::min(kBlock, p.n - column);
  for (int64_t i = 0; i < rows; ++i) std::fill_n(sums + i * kBlock, kBlock, 0.0f);
  for (int64_t i = rows; i < kBlock && i % Tile::kRows != 0; ++i) {
    std::fill_n(sums + i * kBlock, kBlock, 0.0f);
  }
  for (int64_t first = 0; first < p.k; first += kStrip) {
    const int64_t terms = std::min(kStrip, p.k - first);
    PackRows<Tile::kRows>(p, row, first, terms, rows, a);
    PackColumns<Tile::kColumns>(p, column, first, terms, columns, b);
    for (int64_t j = 0; j < columns; j += Tile::kColumns) {
      for (int64_t i = 0; i < rows; i += Tile::kRows) {
        AddProducts(lanes, a + i * terms, b + j * terms, terms, sums + i * kBlock + j, kBlock);
      }
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    const float* const sum = sums + i * kBlock;
    float* const out = p.out + (row + i) * p.n + column;
    if (p.d == nullptr) {
      std::copy_n(sum, columns, out);
      continue;
    }
    const float* const d = p.d + (row + i) * p.n + column;
    BRIGADE_SIMD_LOOP
    for (int64_t j = 0; j < columns; ++j) out[j] = MuonOutput(p, sum[j], d[j]);
  }
}

int64_t BlocksAcross(const MuonProduct& p) { return (p.n + kBlock - 1) / kBlock; }

}  // namespace

template <typename Grad>
StepError MuonMomentumRange(const MuonMomentumSegment& segment, const MuonParameters& parameters,
                            int64_t begin, int64_t end) {
  return UpdateRange<MuonMomentumPolicy, Grad, NoCopy>(segment, parameters, begin, end);
}
template StepError MuonMomentumRange<float>(const MuonMomentumSegment&, const MuonParameters&,
                                            int64_t, int64_t);
template StepError MuonMomentumRange<precision::Half>(const MuonMomentumSegment&,
                                                      const MuonParameters&, int64_t, int64_t);
template StepError MuonMomentumRange<precision::BFloat16>(const MuonMomentumSegment&,
                                                          const MuonParameters&, int64_t, int64_t);

template <typename Copy>
StepError MuonParamRange(const MuonParamSegment& segment, const MuonParameters& parameters,
                         int64_t begin, int64_t end) {
  return UpdateRange<MuonParamPolicy, float, Copy>(segment, parameters, begin, end);
}
template StepError MuonParamRange<NoCopy>(const MuonParamSegment&, const MuonParameters&, int64_t,
                                          int64_t);
template StepError MuonParamRange<precision::Half>(const MuonParamSegment&, const MuonParameters&,
                                                   int64_t, int64_t);
template StepError MuonParamRange<precision::BFloat16>(const MuonParamSegment&,
                                                       const MuonParameters&, int64_t, int64_t);

void MuonSumTiles(const MuonMatrix& matrix, int64_t begin, int64_t end) {
  auto* const sums = reinterpret_cast<double*>(matrix.workspace);
  const int64_t elements = matrix.rows * matrix.columns;
  for (int64_t tile = begin; tile < end; ++tile) {
    const float* const x = matrix.update + tile * kMuonTile;
    const int64_t size = std::min(kMuonTile, elements - tile * kMuonTile);
    RunSimd([&]() BRIGADE_SIMD_BODY {
      alignas(64) double lanes[kMuonLanes] = {};
      for (int64_t i = 0; i < size; i += kMuonLanes) {
        const int64_t count = std::min<int64_t>(kMuonLanes, size - i);
        BRIGADE_SIMD_LOOP
        for (int64_t l = 0; l < count; ++l) lanes[l] = AddMuonSquare(lanes[l], x[i + l]);
      }
      sums[tile] = Halve(lanes);
    });
  }
}

void MuonNormalizeRows(const MuonMatrix& matrix, double eps, int64_t begin, int64_t end) {
  const MuonWorkspace w = MuonWorkspaceOf(matrix.rows, matrix.columns);
  const int64_t tiles = MuonTiles(w.tall * w.wide);
  const float norm = MuonNorm(reinterpret_cast<const double*>(matrix.workspace), tiles, eps);
  float* const to = matrix.workspace + w.matrix;
  if (matrix.rows >= matrix.columns) {
    RunSimd([&]() BRIGADE_SIMD_BODY {
      BRIGADE_SIMD_LOOP
      for (int64_t i = begin * w.wide; i < end * w.wide; ++i) {
        to[i] = precision::Div(matrix.update[i], norm);
      }
    });
    return;
  }
  for (int64_t i = 0; i < w.wide; ++i) {
    const float* const row = matrix.update + i * w.tall;
    for (int64_t j = begin; j < end; ++j) to[j * w.wide + i] = precision::Div(row[j], norm);
  }
}

int64_t MuonBlocks(const MuonProduct& product) {
  return (product.m + kBlock - 1) / kBlock * BlocksAcross(product);
}

void MuonProductBlocks(const MuonProduct& product, int64_t begin, int64_t end) {
  RunSimdWithTag([&](auto simd) BRIGADE_SIMD_BODY {
    using Lanes = LanesOf<decltype(simd)::kValue>;
    const int64_t across = BlocksAcross(product);
    for (int64_t block = begin; block < end; ++block) {
      MakeBlock(Lanes(), product, block / across * kBlock, block % across * kBlock);
    }
  });
}

void MuonRestoreRows(const MuonMatrix& matrix, bool swapped, int64_t begin, int64_t end) {
  const MuonWorkspace w = MuonWorkspaceOf(matrix.rows, matrix.columns);
  const float* const from = matrix.workspace + (swapped ? w.next : w.matrix);
  if (matrix.rows >= matrix.columns) {
    std::copy(from + begin * w.wide, from + end * w.wide, matrix.update + begin * w.wide);
    return;
  }
  for (int64_t j = 0; j < w.tall; ++j) {
    for (int64_t i = begin; i < end; ++i) matrix.update[i * w.tall + j] = from[j * w.wide + i];
  }
}

void MuonOrthogonalizeMatrix(const MuonMatrix& matrix, int steps,
                             const MuonCoefficients& coefficients, double eps) {
  const MuonWorkspace w = MuonWorkspaceOf(matrix.rows, matrix.columns);
  MuonSumTiles(matrix, 0, MuonTiles(w.tall * w.wide));
  MuonNormalizeRows(matrix, eps, 0, w.tall);
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < kMuonProducts; ++i) {
      const MuonProduct product =
          MuonProductOf(i, w, matrix.workspace, step % 2 != 0, coefficients);
      MuonProductBlocks(product, 0, MuonBlocks(product));
    }
  }
  MuonRestoreRows(matrix, steps % 2 != 0, 0, matrix.rows);
}

}  // namespace brigade::kernels
