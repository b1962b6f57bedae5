#ifndef BRIGADE_OPTIM_LAMB_UPDATE_H_
#define BRIGADE_OPTIM_LAMB_UPDATE_H_

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
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/step_controller.h"

namespace brigade::optim {

// The groups as the kernels take them.
std::vector<kernels::LambGroup> LambGroupsOf(const OptimizerOptions& options);

// The ranks that have pieces of the same tensors.
struct LambRanks {
  int ranks = 1;
  int rank = 0;
  // Memory is for the ratios of so many tensors, if there are fewer segments.
  int64_t tensors = 0;
  // Of 1-bit LAMB: all tensors of all ranks, where the sums of this update lie, and their numbers,
  // device memory that outlives the update. Their ratios enter the means there.
  std::vector<kernels::LambTensor> all = {};
  absl::Span<kernels::OneBitLambNumbers> numbers = {};
};

// What the lists of a LAMB update consist of.
struct LambSizes {
  // Of this rank's segments, the same on all ranks.
  int64_t tiles = 0;
  // Or segments, if these are more.
  int64_t tensors = 0;
};

// The second pass of a step over memory, and a third, with LAMB: moments and sums of squares; the
// ratio of each tensor, from the sums of all ranks; parameters (kernels/lamb).
//
// Lists        Of several ranks each segment is a piece of a tensor as LambMoments takes it, and
//              UpdateSegment::tensor says where the sums of the whole tensor are: a rank's lie in
//              the order of its lists. Of one rank a segment is a tensor, and that is not looked
//              at.
// Memory       Bytes(...), device memory of purpose scratch.
// Traffic      40 bytes an element beside the gradient's and the copy's.
// Stream       Enqueued on the stream given; allocates nothing in steady state and never waits.
// Determinism  Same bits on every device, for any number of threads and ranks.
// Errors       Those of the kernels, when enqueued.
class LambUpdate {
 public:
  static absl::StatusOr<std::unique_ptr<LambUpdate>> Create(const OptimizerOptions& options,
                                                            const std::vector<UpdateList>& lists,
                                                            const LambRanks& ranks,
                                                            device::Context& context);
  static int64_t Bytes(const LambSizes& sizes, int ranks);

  // Enqueues an all-gather of the ranks' sums on the step's stream: `own` lies in its place in
  // `all`. Device memory.
  using GatherSums =
      absl::FunctionRef<absl::Status(absl::Span<const double> own, absl::Span<double> all)>;
  // Follows StepController::Decide. The decision is in memory that `stream` can read.
  absl::Status Enqueue(const StepDecision& decision, GatherSums gather,
                       device::Stream& stream) const;

 private:
  struct List {
    UpdateTypes types;
    std::vector<kernels::LambSegment> segments;
    // Of the list's own tiles, in doubles.
    size_t begin = 0;
    size_t size = 0;
  };

  LambUpdate() = default;
  kernels::LambOptions OptionsOf(const UpdateTypes& types, const StepDecision& decision) const;

  std::vector<kernels::LambGroup> groups_;
  std::vector<List> lists_;
  // Of all segments.
  std::vector<kernels::LambTensor> tensors_;
  LambRanks ranks_;
  // Of the means of ratios.
  kernels::OneBitLambConstants constants_ = {};
  // In doubles, of each rank.
  size_t own_size_ = 0;
  device::Buffer sums_, trusts_;
};

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_LAMB_UPDATE_H_
