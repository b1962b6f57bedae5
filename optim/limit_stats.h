#ifndef BRIGADE_OPTIM_LIMIT_STATS_H_
#define BRIGADE_OPTIM_LIMIT_STATS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::optim {

// A rank's gradients count as an overflow where they, or what is added to them before they are
// exchanged, are too large for sums in fp32: *gradients[0] = {infinity, not finite} if
//
//   norm of the gradients / (loss scale * divisor) >= limit,   or   norm of the others >= limit,
//
// or the others are not all finite. Otherwise nothing is written. What `step_control` decides of
// the statistics of all ranks is then that the step is skipped.
//
// Shapes       gradients: a rank's lists, one or more, as grad_check has written them; others: one.
//              Device memory, as `state`, whose loss scale is that of the gradients.
// Precision    Double: squares of norms are compared.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits.
// Determinism  Same bits on every device.
// Errors       InvalidArgument naming argument and value, before anything is enqueued: no lists,
//              null, misaligned address, overlap, memory known as another device's, a divisor or a
//              limit that is not in (0, 2^100].
absl::Status LimitStats(absl::Span<kernels::GradStats> gradients, const kernels::GradStats* others,
                        const kernels::StepState* state, double divisor, double limit,
                        device::Stream& stream);

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_LIMIT_STATS_H_
