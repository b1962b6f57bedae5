#ifndef BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_H_
#define BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_H_

// The four steps of PowerSGD on one device; what crosses ranks goes between them. Each is one call
// for all matrices of a model, of the same shapes or of different ones:
//
//   LowRankRows       P = M Q          then the sum of P over ranks
//   Orthogonalize     P's columns
//   LowRankColumns    Q = M^T P        then the mean of Q over ranks
//   LowRankRestore    M' = P Q^T;  M becomes M - M', the error that the next step adds to

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/orthogonalize/orthogonalize_math.h"

namespace brigade::kernels {

struct OrthogonalizeOptions {
  // Added to the norms that columns are divided by: positive, finite.
  double epsilon = 1e-8;
};

// Gram-Schmidt over the columns of each matrix, in place: for each column, in order,
//
//   column /= norm2(column) + epsilon;  later columns -= dot(column, later column) * column
//
// Shapes       Any number of matrices of any shapes; one with an extent of 0 is left out. Any
//              element-aligned address.
// Precision    fp32, each operation rounded once; dot products and norms are double. A column of
//              zeros stays that. Of columns that depend on earlier ones rounding errors are left,
//              which become a direction: no column is refused.
// Non-finite   NaN and infinity spread over their column and all later ones.
// Traffic      Columns * (columns + 1) * rows * 6 bytes, of caches: a factor of one matrix stays
//              in them.
// Aliasing     None: no matrix may overlap anything else.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              may go when the call returns.
// Determinism  Same bits on every device, for any number of threads and SIMD target, payloads of
//              NaN aside; the order of sums is in orthogonalize_math.h.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative extents, more than kMaxLowRank columns, misaligned
//              address, overlap, memory known as another device's, an epsilon out of range.
// Source       Vogels et al. 2019, PowerSGD (arXiv 1905.13727), in the form with an epsilon that
//              PyTorch documents.
absl::Status Orthogonalize(absl::Span<const OrthogonalizeSegment> segments,
                           const OrthogonalizeOptions& options, device::Stream& stream);

// P = M Q for each matrix.
//
// Shapes       Any number of matrices of any shapes; one with an extent or rank of 0 is left out.
//              Any element-aligned address; `product` and `workspace` are not looked at.
// Precision    fp32: 16 sums of fma, added by halving.
// Traffic      4 bytes an element of M, once from memory, and from caches once more for each 4
//              columns of Q after the first 4.
//
// In all else like Orthogonalize; what is only read may overlap.
absl::Status LowRankRows(absl::Span<const LowRankSegment> segments, device::Stream& stream);

// Q = M^T P for each matrix.
//
// Precision    fp32: fma in ascending order over kRowTile rows, these sums in ascending order.
// Traffic      Those of LowRankRows, and for the sums of tiles rank / 32 bytes an element of M.
//
// In all else like LowRankRows, with a workspace for each matrix of more than kRowTile rows.
absl::Status LowRankColumns(absl::Span<const LowRankSegment> segments, device::Stream& stream);

// product = P Q^T and M = M - product for each matrix.
//
// Precision    fp32: a product, then fma in ascending order of ranks; the difference rounds once.
// Traffic      12 bytes an element.
//
// In all else like LowRankRows.
absl::Status LowRankRestore(absl::Span<const LowRankSegment> segments, device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ORTHOGONALIZE_ORTHOGONALIZE_H_
