#ifndef BRIGADE_ZERO_PLAN_MATRIX_LAYOUT_H_
#define BRIGADE_ZERO_PLAN_MATRIX_LAYOUT_H_

// Who makes which of Muon's updates orthogonal, and the memory for it.
//
// A rank has the momentum of its slices. A matrix that lies whole in one is that rank's. One that
// is cut has an owner, one of the ranks that have a piece: pieces of its update go there, and come
// back orthogonal. Owners are chosen in the plan's order: the one that has had the least work, of
// those of equal work the first; work is rows * columns * the smaller of both. Where ranks update
// everything each has all matrices, and nothing crosses.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

struct MatrixPiece {
  int rank = 0;
  // Of the bucket.
  ElementRange range = {};
};
// Of a range of elements of an array of which each rank has so many, rank after rank.
std::vector<MatrixPiece> PiecesOf(const ElementRange& range, int64_t slice);
// Of ranks with a piece the one that has had the least work, of those of equal work the first;
// `work`, by rank, has `amount` more of it then.
int OwnerOf(const std::vector<MatrixPiece>& pieces, double amount, std::vector<double>& work);

struct PlannedMatrix {
  int bucket = 0;
  int parameter = 0;
  // Of the bucket.
  ElementRange range = {};
  int64_t rows = 0, columns = 0;
  int owner = 0;
  // One, of the owner, or more, by rank.
  std::vector<MatrixPiece> pieces = {};

  bool is_cut() const { return pieces.size() > 1; }
};

class MatrixLayout {
 public:
  // Of the optimizer kMuon. `rank`: in the group that shares a state.
  MatrixLayout(const Plan& plan, const ZeroOptions& options, int rank);

  // Those that are trained and have elements, bucket by bucket.
  const std::vector<PlannedMatrix>& matrices() const { return matrices_; }

  // One buffer, in fp32: where the updates of what this rank updates of a bucket begin; where this
  // rank has a matrix whole that is cut, or -1; and where it works, on one matrix after another.
  int64_t updates_at(int bucket) const { return updates_at_[static_cast<size_t>(bucket)]; }
  int64_t whole_at(size_t matrix) const { return whole_at_[matrix]; }
  int64_t workspace_at() const { return workspace_at_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(float)); }

  // What this rank sends in a step: its pieces of others' matrices, and others' of its own.
  int64_t sent_bytes() const;

 private:
  std::vector<PlannedMatrix> matrices_;
  std::vector<int64_t> updates_at_, whole_at_;
  int64_t workspace_at_ = 0, size_ = 0;
  int rank_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_PLAN_MATRIX_LAYOUT_H_
