#ifndef BRIGADE_ZERO_INTERNAL_LOCO_ERRORS_H_
#define BRIGADE_ZERO_INTERNAL_LOCO_ERRORS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/compressed/quantized_reduce_scatter.h"
#include "brigade/device/buffer.h"
#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/kernels/cast/cast_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/internal/saved_errors.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// The errors of gradients that are summed as codes (ZeroOptions::loco): messages of int8 codes, in
// the units of the gradients that have left them, loss scale included, with that scale. On the
// communication stream; nothing waits on the host.
//
// The first sum of a step brings a bucket's errors to the loss scale of its gradients: it
// multiplies the maxima of their blocks by the quotient of the two scales. That is exact where
// scales are powers of two and no maximum becomes subnormal. A step that is skipped keeps every bit
// of messages and scale.
class LocoErrors final : public SavedErrors {
 public:
  // Null without ZeroOptions::loco.
  static absl::StatusOr<std::unique_ptr<LocoErrors>> Create(const Plan& plan,
                                                            const ZeroOptions& options,
                                                            StepStreams& streams);

  // Of the optimizer, in device memory: before the first step.
  void SetState(const kernels::StepState* state) { state_ = state; }

  // Whether codes are sent. A rank alone sends none, and keeps what it has loaded for the next
  // save.
  bool has_codes() const { return errors_.bytes() > 0; }

  // Messages of each bucket of Plan::gradients(), those of sums behind its own; then a line of
  // memory with 1 / loss scale, 0 where there have been no gradients.
  const device::Buffer& errors() const { return errors_; }

  // Before a sum of a bucket of Plan::gradients(). `is_first`: of this step's; `forget`: as in
  // LocoParameters.
  absl::StatusOr<collectives::QuantizedFeedback> Begin(int gradient, bool is_first, bool forget);
  // Behind the decision: if the step is skipped, errors are as they were before it.
  absl::Status Keep();
  // Ends the step: errors are zero, and the slices as they were, which a reader may have.
  absl::Status ForgetMessages();

  // One array. What the errors of all ranks add up to, of sums of nodes and of all users of a tied
  // parameter, also in another group, over the divisor of gradients and the loss scale; each rank
  // then has an equal share of it in the errors of its own messages, and none elsewhere.
  absl::Status ClearErrors() override;
  float* Slice(int bucket, int array) const override;
  absl::Status Share() override;
  absl::Status TakeShared(int bucket) override;

 private:
  // Where a gradient's errors are.
  struct Place {
    // In bytes; behind the messages of its own those of sums of nodes.
    int64_t begin = 0, local = 0, sum = 0;
    // The elements of a message.
    int64_t count = 0;
    // From the maxima as they were before the step to those of now.
    std::vector<kernels::CastSegment> maxima;
  };
  // Device memory of a few numbers.
  struct Control {
    // Of no gradients.
    kernels::GradStats stats;
    kernels::StepState state;
    kernels::GroupStep group;
    float lr;
    // From the loss scale of errors to that of the step.
    float ratio;
    // From the sum of errors over ranks to what is saved: without the loss scale, and with it.
    float unscaled, to_saved;
    // From what is saved to a rank's errors at a loss scale of 1; and where another group has the
    // parameter, too, and takes as much.
    float from_saved, from_saved_of_two;
  };

  LocoErrors(const Plan& plan, const ZeroOptions& options, StepStreams& streams)
      : plan_(plan), options_(options), streams_(streams) {}

  absl::Status Allocate();
  absl::Status FillControl();
  absl::Status BeginStep();
  // What this rank's messages hold, into `whole_`.
  absl::Status AddUp(int bucket);
  absl::Status AddMessage(const char* message, int64_t count, float* to);
  absl::Status Copy(const float* from, float* to, int64_t count, const float* scale,
                    bool accumulate = false);

  Control* control() const { return control_.as<Control>().data(); }
  char* At(const device::Buffer& errors, int64_t begin) const {
    return errors.as<char>().data() + begin;
  }
  float* InverseScale(const device::Buffer& errors) const {
    return reinterpret_cast<float*>(At(errors, messages_bytes_));
  }

  const Plan& plan_;
  const ZeroOptions& options_;
  StepStreams& streams_;
  const kernels::StepState* state_ = nullptr;
  // By Plan::gradients().
  std::vector<Place> places_;
  int64_t messages_bytes_ = 0;
  // All messages, and the inverse scale: now, and before the step's first sums.
  device::Buffer errors_, before_;
  // By bucket.
  std::vector<device::Buffer> slices_;
  // Those that are trained; last what another group has too, by name: both groups' order.
  std::vector<int> order_;
  // Of the largest bucket and of its slice, in fp32.
  device::Buffer whole_, part_;
  device::Buffer control_;
  bool in_step_ = false;
  // Of one bucket at a time.
  std::vector<kernels::DequantizeSegment> decoded_;
  std::vector<kernels::QuantizeSegment> encoded_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_LOCO_ERRORS_H_
