#ifndef BRIGADE_ZERO_INTERNAL_MATRIX_UPDATE_H_
#define BRIGADE_ZERO_INTERNAL_MATRIX_UPDATE_H_

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/kernels/muon/muon.h"
#include "brigade/optim/step_controller.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/matrix_layout.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// Muon's update of matrices, whose parts are on several ranks: momenta of the own slices; the
// updates of matrices that are cut to their owners; these orthogonal, one matrix after another;
// back; and the parameters of the own slices.
//
// Memory       MatrixLayout's, device memory of purpose scratch.
// Traffic      MatrixLayout::sent_bytes, as gradients, in messages of a piece each.
// Stream       Enqueued on the communication stream; allocates nothing and never waits, but for
//              what engines do in a send.
// Determinism  Same bits for any number of ranks.
// Errors       Those of the kernels and of Communicator::Send.
class MatrixUpdate {
 public:
  // Of a bucket what this rank updates: the fp32 master, the momentum, the gradient, and the
  // weights where they are rounded, else null.
  struct Arrays {
    float* master = nullptr;
    float* momentum = nullptr;
    const void* grad = nullptr;
    void* weights = nullptr;
  };
  static absl::StatusOr<std::unique_ptr<MatrixUpdate>> Create(
      const Plan& plan, const ZeroOptions& options, absl::FunctionRef<Arrays(int bucket)> arrays_of,
      StepStreams& streams);

  // Follows StepController::Decide: a call of all ranks that share a state. The decision is in
  // memory that the communication stream can read.
  absl::Status Enqueue(const optim::StepDecision& decision);

 private:
  MatrixUpdate(const Plan& plan, const ZeroOptions& options, StepStreams& streams);

  // The updates of elements of a bucket that are in this rank's slice.
  float* UpdatesAt(int bucket, int64_t element) const;
  void ListSegments(const PlannedMatrix& matrix, const MatrixPiece& piece, const Arrays& arrays);
  // Pieces of matrices that are cut to their owners, or back. All ranks go through them in one
  // order, so that no two wait for each other.
  absl::Status Move(bool to_owners);

  const Plan& plan_;
  const ZeroOptions& options_;
  StepStreams& streams_;
  const MatrixLayout layout_;
  device::Buffer memory_;
  std::vector<kernels::MuonGroup> groups_;
  // By the type of the gradient, and by that of the weights.
  std::map<precision::DType, std::vector<kernels::MuonMomentumSegment>> momenta_;
  std::map<std::optional<precision::DType>, std::vector<kernels::MuonParamSegment>> params_;
  // Of this rank.
  std::vector<kernels::MuonMatrix> own_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_MATRIX_UPDATE_H_
