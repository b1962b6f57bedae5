#ifndef BRIGADE_ZERO_PLAN_FACTOR_LAYOUT_H_
#define BRIGADE_ZERO_PLAN_FACTOR_LAYOUT_H_

// Who makes the factors of which tensor with Adafactor, and the memory for it.
//
// A tensor that lies whole in a slice is its rank's. One that is cut has an owner, one of the ranks
// that have a piece: pieces of its gradient, and with scale_parameter of its master, go there with
// the pieces of its factors, which rest in the slices of the state; the factors' pieces come back,
// and to each of these ranks the scales by which it updates its own piece. Owners are chosen in the
// plan's order: the one that has had the fewest elements, of those of equal work the first. Where
// ranks update everything each has all tensors, and nothing crosses.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "brigade/zero/options.h"
#include "brigade/zero/plan/matrix_layout.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

struct PlannedTensor {
  int bucket = 0;
  int parameter = 0;
  // Of the bucket.
  ElementRange range = {};
  // Those of a matrix; of any other tensor it is a row.
  int64_t rows = 0, columns = 0;
  int owner = 0;
  // One, of the owner, or more, by rank.
  std::vector<MatrixPiece> pieces = {};
  // Of the array of factors of the bucket, likewise: of some of these ranks.
  ElementRange factors = {};
  std::vector<MatrixPiece> factor_pieces = {};

  bool is_cut() const { return pieces.size() > 1; }
  bool HasPiece(int rank) const;
};

class FactorLayout {
 public:
  // The array of a bucket's state that has factors, counted from the master on.
  static constexpr int kFactorsArray = 1;

  // Of the optimizer kAdafactor. `rank`: in the group that shares a state.
  FactorLayout(const Plan& plan, const ZeroOptions& options, int rank);

  // Those that are trained and have elements, bucket by bucket.
  const std::vector<PlannedTensor>& tensors() const { return tensors_; }

  // One buffer, in bytes, that the tensors of one bucket after another have: where this rank has
  // the scales of a tensor of which it has a piece, and of its own their workspace; and of its own
  // that are cut the whole gradient, master and factors. -1: it has none.
  struct Place {
    int64_t scales = -1, workspace = -1, grad = -1, master = -1, factors = -1;
  };
  const Place& place(size_t tensor) const { return places_[tensor]; }
  int64_t bytes() const { return bytes_; }

  // What this rank sends in a step.
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  void Lay(const Plan& plan, const ZeroOptions& options, int rank);
  void CountSent(const Plan& plan, const ZeroOptions& options, int rank);

  std::vector<PlannedTensor> tensors_;
  std::vector<Place> places_;
  int64_t bytes_ = 0, sent_bytes_ = 0;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_PLAN_FACTOR_LAYOUT_H_
