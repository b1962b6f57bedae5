#ifndef BRIGADE_ZERO_INTERNAL_SHARDED_UPDATE_H_
#define BRIGADE_ZERO_INTERNAL_SHARDED_UPDATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/optim/fused_update.h"
#include "brigade/optim/step_controller.h"
#include "brigade/zero/internal/gradient_store.h"
#include "brigade/zero/internal/parameter_store.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// The optimizer's state of what this rank updates, and the step's two passes over it. All on the communication
// stream.
class ShardedUpdate {
 public:
  static absl::StatusOr<std::unique_ptr<ShardedUpdate>> Create(const Plan& plan,
                                                               const ZeroOptions& options,
                                                               const GradientStore& gradients,
                                                               const ParameterStore& parameters,
                                                               StepStreams& streams);

  // Checks the own slices' gradients, tells the other ranks, decides, and updates.
  absl::Status Enqueue();

  optim::StepController& controller() { return *controller_; }

  // One of a bucket's fp32 arrays, of the elements UpdatedRange: the master (the working weights themselves where
  // they are fp32) and the moments.
  int arrays() const { return 1 + moments_; }
  float* Array(int bucket, int array) const;

 private:
  ShardedUpdate(const Plan& plan, const ZeroOptions& options, const ParameterStore& parameters,
                StepStreams& streams);

  struct Check {  // of the gradients of one type
    precision::DType dtype;
    std::vector<kernels::GradSegment> segments;
  };

  absl::Status Allocate();
  void* Weights(int bucket) const;  // what the update writes of them
  void ListGradients(const GradientStore& gradients);
  void ListUpdates(const GradientStore& gradients);
  void AppendSegments(int bucket, const void* grad, std::vector<optim::UpdateSegment>& segments);

  const Plan& plan_;
  const ZeroOptions& options_;
  const ParameterStore& parameters_;
  StepStreams& streams_;
  const int moments_;
  std::vector<device::Buffer> states_;  // of buckets: [master][moments]
  std::vector<Check> checks_;
  device::Buffer workspace_;  // of the longest check
  std::vector<optim::FusedUpdate> updates_;
  std::unique_ptr<optim::StepController> controller_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_SHARDED_UPDATE_H_
