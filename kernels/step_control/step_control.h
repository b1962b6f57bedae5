#ifndef BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_H_
#define BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_H_

#include <array>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/step_control/step_control_math.h"
#include "brigade/kernels/step_control/step_control_parameters.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::kernels {

struct StepControlOptions {
  LossScaleOptions loss_scale;
  // Ranks times micro-batches where the loss of each is a mean and gradients are added; 1 for a
  // sum. In [2^-60, 2^60].
  double grad_divisor = 1.0;
  // Where the sums of squares are of other arrays than the gradients that the step applies: what
  // stands for grad_divisor in their norm. In the same range; 0: the same.
  double norm_divisor = 0.0;
  // Greater than 0; infinity means no clipping.
  double max_grad_norm = std::numeric_limits<double>::infinity();
  // If false, a step with non-finite gradients is not skipped.
  bool check_overflow = true;
  // One per parameter group, at most kMaxStepGroups; {0, 0} for a group without moments (SGD). In
  // [0, 1). The same as the groups' in Adam (adam.h): the bias corrections come from here.
  absl::Span<const StepBetas> betas;
  // Device memory, [betas.size()][lr_table_size]: the learning rate of each update, counted from
  // the first one made; the last entry stays. Skipped steps do not advance it.
  const float* lr_table = nullptr;
  // At least 1.
  int64_t lr_table_size = 0;
  // Memory that the stream's work can read, such as page-locked host memory, or null. If one is
  // not 0 when the step is decided, what was to give the gradients or the statistics has failed:
  // `skip` is set, and nothing else changes.
  std::array<const int32_t*, kFailureFlags> failure_flags = {};
};

// Decides one step from what grad_check found, for adam and sgd to read:
//   norm = sqrt(sum of the ranks' sums of squares) / (loss_scale * norm_divisor)
//   grad_multiplier = min(1, max_grad_norm / (norm + 1e-6)) / (loss_scale * grad_divisor)
// with the loss scale that was in effect during backward; then skip, the new loss scale, the step
// count, and per group the learning rate and bias corrections.
//
// Shapes       stats: one per rank, added in order; group_steps: [options.betas.size()]. Device
//              memory. A skipped step leaves group_steps alone.
// Precision    Double, each operation rounded once; results rounded to float once.
// Traffic      A few hundred bytes.
// Stream       Enqueued on `stream`; allocates nothing and never waits.
// Determinism  Same bits on every device and rank.
// Errors       InvalidArgument naming the argument and its value, before anything is enqueued: no
//              stats, null, memory known as another device's, overlap, an option out of its range
//              or NaN.
// Source       DeepSpeed 0.19's loss-scale rule for ZeRO; Pascanu et al. 2013.
absl::Status StepControl(absl::Span<const GradStats> stats, const StepControlOptions& options,
                         StepState* state, GroupStep* group_steps, device::Stream& stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_STEP_CONTROL_STEP_CONTROL_H_
