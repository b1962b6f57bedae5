#ifndef BRIGADE_OPTIM_ONE_BIT_LAMB_UPDATE_H_
#define BRIGADE_OPTIM_ONE_BIT_LAMB_UPDATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/lamb/lamb.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb.h"
#include "brigade/optim/fused_update.h"
#include "brigade/optim/lamb_update.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/step_controller.h"

namespace brigade::optim {

// The update of 1-bit LAMB once second moments stay (kernels/one_bit_lamb), from first moments that
// the ranks have exchanged; before, it is LambUpdate.
//
// Lists        Segments are this rank's pieces of tensors: `grad` is the new first moment, in fp32;
//              fresh_moment, tensor_index and first_tile are set.
// Memory       Bytes(...), device memory of purpose scratch.
// Traffic      44 bytes an element beside the copy's.
// Stream       Enqueued on the stream given; allocates nothing in steady state and never waits.
// Determinism  Same bits on every device, for any number of threads and ranks.
// Errors       Those of the kernels, when enqueued.
class OneBitLambUpdate {
 public:
  // `sizes.tiles` of sums are each rank's; `tensors` says where those of all tensors lie, `counts`
  // how many elements they have. `numbers` are theirs, device memory that outlives the update.
  static absl::StatusOr<std::unique_ptr<OneBitLambUpdate>> Create(
      const OptimizerOptions& options, const std::vector<UpdateList>& lists, const LambRanks& ranks,
      int64_t tiles, const std::vector<int64_t>& counts, device::Context& context);
  static int64_t Bytes(const LambSizes& sizes, int ranks);

  // Enqueues an all-gather of the ranks' sums on the step's stream: `own` lies in its place in
  // `all`. Device memory.
  using GatherSums = absl::FunctionRef<absl::Status(absl::Span<const kernels::OneBitLambSums> own,
                                                    absl::Span<kernels::OneBitLambSums> all)>;
  // Behind the last step of the warm-up, and wherever it is not known whether this has been done:
  // what is frozen keeps every bit.
  absl::Status Freeze(GatherSums gather, device::Stream& stream) const;
  // Follows StepController::Decide.
  absl::Status Enqueue(const StepDecision& decision, GatherSums gather,
                       device::Stream& stream) const;

 private:
  struct List {
    UpdateTypes types;
    std::vector<kernels::LambSegment> params;
  };

  OneBitLambUpdate() = default;
  kernels::LambOptions OptionsOf(const UpdateTypes& types, const StepDecision& decision) const;
  absl::Span<kernels::OneBitLambSums> all() const;
  absl::Span<kernels::OneBitLambSums> own() const;

  std::vector<kernels::LambGroup> groups_;
  kernels::OneBitLambConstants constants_ = {};
  LambRanks ranks_;
  std::vector<int64_t> counts_;
  size_t tiles_ = 0;
  // Of all lists.
  std::vector<kernels::OneBitLambSegment> segments_;
  std::vector<List> lists_;
  // Sums of all ranks, and behind them the sum over tensors.
  device::Buffer sums_, trusts_;
};

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_ONE_BIT_LAMB_UPDATE_H_
