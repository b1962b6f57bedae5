#ifndef BRIGADE_OPTIM_STEP_EXECUTOR_H_
#define BRIGADE_OPTIM_STEP_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/grad_check/grad_check_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/optim/fused_update.h"
#include "brigade/optim/lamb_update.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/step_controller.h"
#include "brigade/precision/dtype.h"

namespace brigade::optim {

// Gradients of one type, checked in one call of grad_check. Device memory.
struct GradientList {
  precision::DType dtype = precision::DType::kFloat32;
  std::vector<kernels::GradSegment> segments = {};
};

// What a rank checks and what it updates in every step. With several ranks each element of the
// gradients is checked by one of them, and all have lists of the same types in the same order.
struct StepLists {
  std::vector<GradientList> gradients = {};
  std::vector<UpdateList> updates = {};
  // Of LAMB: who has the other pieces of the updates' tensors.
  LambRanks lamb = {};
};

// An optimizer step over fixed lists: check the gradients, decide (StepController), update.
//
// Memory       Bytes(...), and with LAMB LambUpdate's, device memory of purpose scratch; host
//              memory of StepController. Gradients may be null at Create where CheckSegment names
//              them.
// Traffic      Two passes: grad_check reads the gradients, the update reads them again and moves
//              the state. LAMB's update takes two.
// Stream       Enqueued on the stream given; allocates nothing in steady state and never waits.
// Determinism  Same bits on every device, for any number of threads. The sums of squares of the
//              lists are added by rank, and of each rank in the order of its lists.
// Errors       Those of the kernels and of StepController, when enqueued.
class StepExecutor {
 public:
  // `control.ranks` ranks take part, of which this is `rank`. Waits for `stream`.
  static absl::StatusOr<std::unique_ptr<StepExecutor>> Create(const OptimizerOptions& optimizer,
                                                              const StepControllerOptions& control,
                                                              int rank, StepLists lists,
                                                              device::Context& context,
                                                              device::Stream& stream);

  // Device memory of an executor with these gradients, whose addresses may still be null; beside
  // LambUpdate's.
  static int64_t Bytes(const OptimizerOptions& optimizer, const StepControllerOptions& control,
                       const std::vector<GradientList>& gradients);

  // Enqueues an all-gather of the ranks' statistics on the step's stream: `own` lies in its place
  // in `all`. Device memory.
  using GatherStats = absl::FunctionRef<absl::Status(absl::Span<const kernels::GradStats> own,
                                                     absl::Span<kernels::GradStats> all)>;
  // `gather_sums` is of LAMB alone, between its passes.
  using GatherSums = LambUpdate::GatherSums;
  absl::Status Enqueue(GatherStats gather, GatherSums gather_sums, device::Stream& stream);
  // The same of a single rank, which gathers nothing.
  absl::Status Enqueue(device::Stream& stream);

  // The same in parts, with the same bits, for gradients that need not be there all at once:
  // CheckSegment for each segment of each list, in any order, then Decide, then Update. `grad` is
  // where the segment's gradient is now.
  absl::Status CheckSegment(size_t list, size_t segment, const void* grad, device::Stream& stream);
  absl::Status Decide(GatherStats gather, device::Stream& stream);
  absl::Status Update(GatherSums gather_sums, device::Stream& stream);

  StepController& controller() { return *controller_; }
  const StepController& controller() const { return *controller_; }

 private:
  StepExecutor(int rank, std::vector<GradientList> gradients);

  // Of the tiles of all lists, one after the other.
  absl::Span<double> TileSums(size_t list) const;

  const int rank_;
  const std::vector<GradientList> gradients_;
  // By list and segment: the tiles of the list before it.
  std::vector<std::vector<int64_t>> tiles_before_;
  std::vector<FusedUpdate> updates_;
  // Instead of these, of LAMB.
  std::unique_ptr<LambUpdate> lamb_;
  device::Buffer workspace_;
  std::unique_ptr<StepController> controller_;
};

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_STEP_EXECUTOR_H_
