#ifndef BRIGADE_ZERO_INTERNAL_FACTORED_UPDATE_H_
#define BRIGADE_ZERO_INTERNAL_FACTORED_UPDATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/kernels/adafactor/adafactor.h"
#include "brigade/optim/step_controller.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/internal/move_piece.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/factor_layout.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// Adafactor's update of tensors, whose parts are on several ranks, one bucket after another: pieces
// of those that are cut to their owners; factors and scales of whole tensors; these to the ranks
// that have pieces; and the parameters of the own slices.
//
// Memory       FactorLayout's, device memory of purpose scratch.
// Traffic      FactorLayout::sent_bytes, as gradients, in messages of a piece each.
// Stream       Enqueued on the communication stream; allocates nothing and never waits, but for
//              what engines do in a send.
// Determinism  Same bits for any number of ranks.
// Errors       Those of the kernels and of Communicator::Send.
class FactoredUpdate {
 public:
  // Of a bucket what this rank updates: the fp32 master, the factors, the first moment or null, the
  // gradient, and the weights where they are rounded, else null.
  struct Arrays {
    float* master = nullptr;
    float* factors = nullptr;
    float* moment = nullptr;
    const void* grad = nullptr;
    void* weights = nullptr;
  };
  static absl::StatusOr<std::unique_ptr<FactoredUpdate>> Create(
      const Plan& plan, const ZeroOptions& options, absl::FunctionRef<Arrays(int bucket)> arrays_of,
      StepStreams& streams);

  // Follows StepController::Decide: a call of all ranks that share a state. The decision is in
  // memory that the communication stream can read.
  absl::Status Enqueue(const optim::StepDecision& decision);

 private:
  struct BucketWork {
    precision::DType grad_dtype = precision::DType::kFloat32;
    std::optional<precision::DType> copy_dtype;
    Arrays arrays = {};
    // Of the layout's tensors.
    size_t first = 0, count = 0;
    // Those of this rank, and its pieces of all.
    std::vector<kernels::AdafactorTensor> own;
    std::vector<kernels::AdafactorSegment> segments;
  };

  FactoredUpdate(const Plan& plan, const ZeroOptions& options, StepStreams& streams)
      : plan_(plan), options_(options), streams_(streams), layout_(plan, options, streams.rank()) {}

  // The first element of a bucket that this rank updates; of factors, of their array.
  int64_t FirstOf(int bucket) const;
  void List(size_t tensor, BucketWork& work);
  char* At(int64_t offset) const {
    return offset < 0 ? nullptr : memory_.as<char>().data() + offset;
  }
  // Pieces of tensors that are cut to their owners, or what is made of them back. All ranks go
  // through them in one order, so that no two wait for each other.
  absl::Status ToOwners(const BucketWork& work);
  absl::Status FromOwners(const BucketWork& work);
  PieceEnds FactorsOf(const PlannedTensor& tensor, const BucketWork& work, size_t number,
                      const MatrixPiece& piece) const;

  const Plan& plan_;
  const ZeroOptions& options_;
  StepStreams& streams_;
  const FactorLayout layout_;
  device::Buffer memory_;
  std::vector<kernels::AdafactorGroup> groups_;
  std::vector<BucketWork> work_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_FACTORED_UPDATE_H_
