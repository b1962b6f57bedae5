#include "brigade/zero/plan/matrix_layout.h"

#include <algorithm>

#include "brigade/kernels/muon/muon_math.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {
namespace {

// Arrays begin at multiples of 256 bytes.
int64_t Aligned(int64_t size) { return (size + 63) / 64 * 64; }

bool IsOfMatrices(const Bucket& bucket) { return bucket.trainable && bucket.coded; }

}  // namespace

std::vector<MatrixPiece> PiecesOf(const ElementRange& range, int64_t slice) {
  std::vector<MatrixPiece> pieces;
  const int64_t end = range.begin + range.size;
  for (int64_t at = range.begin; at < end;) {
    const int64_t rank = at / slice;
    const int64_t next = std::min(end, (rank + 1) * slice);
    pieces.push_back({static_cast<int>(rank), {at, next - at}});
    at = next;
  }
  return pieces;
}

int OwnerOf(const std::vector<MatrixPiece>& pieces, double amount, std::vector<double>& work) {
  const auto least = std::min_element(
      pieces.begin(), pieces.end(), [&](const MatrixPiece& x, const MatrixPiece& y) {
        return work[static_cast<size_t>(x.rank)] < work[static_cast<size_t>(y.rank)];
      });
  work[static_cast<size_t>(least->rank)] += amount;
  return least->rank;
}

MatrixLayout::MatrixLayout(const Plan& plan, const ZeroOptions& options, int rank)
    : updates_at_(plan.buckets().size(), -1), rank_(rank) {
  const bool has_all = options.traits().whole_optimizer_state;
  std::vector<double> work(static_cast<size_t>(plan.ranks()));
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (!IsOfMatrices(bucket)) continue;
    updates_at_[b] = size_;
    size_ += Aligned(UpdatedRange(plan, options, bucket, rank).size);
    for (const BucketEntry& entry : bucket.entries) {
      const ParameterSpec& spec = plan.parameter(entry.parameter).spec;
      PlannedMatrix matrix = {static_cast<int>(b),
                              entry.parameter,
                              entry.range,
                              spec.shape[0],
                              spec.shape[1],
                              rank,
                              {}};
      if (has_all) {
        matrix.pieces = {{rank, entry.range}};
      } else {
        matrix.pieces = PiecesOf(entry.range, plan.slice(bucket));
        // In double, which holds it as well for any matrix that memory does.
        matrix.owner =
            OwnerOf(matrix.pieces,
                    static_cast<double>(matrix.rows) * static_cast<double>(matrix.columns) *
                        static_cast<double>(std::min(matrix.rows, matrix.columns)),
                    work);
      }
      matrices_.push_back(std::move(matrix));
    }
  }
  int64_t workspace = 0;
  for (const PlannedMatrix& matrix : matrices_) {
    const bool is_own = matrix.owner == rank;
    whole_at_.push_back(is_own && matrix.is_cut() ? size_ : -1);
    if (!is_own) continue;
    if (matrix.is_cut()) size_ += Aligned(matrix.range.size);
    workspace = std::max(workspace, kernels::MuonWorkspaceSize(matrix.rows, matrix.columns));
  }
  workspace_at_ = size_;
  size_ += Aligned(workspace);
}

int64_t MatrixLayout::sent_bytes() const {
  int64_t elements = 0;
  for (const PlannedMatrix& matrix : matrices_) {
    for (const MatrixPiece& piece : matrix.pieces) {
      // There, or back.
      const bool crosses = piece.rank != matrix.owner;
      if (crosses && (piece.rank == rank_ || matrix.owner == rank_)) elements += piece.range.size;
    }
  }
  return elements * static_cast<int64_t>(sizeof(float));
}

}  // namespace brigade::zero::internal
