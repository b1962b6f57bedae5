#ifndef BRIGADE_OPTIM_FREEZE_MOMENT_H_
#define BRIGADE_OPTIM_FREEZE_MOMENT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"

namespace brigade::optim {

// Where a second moment is 0, it becomes infinity: before it stays as it is for the rest of a run.
// Its element has never had a gradient. A first moment that is not exactly 0, as signs never are,
// would move it by a rate over epsilon; over infinity nothing moves it. In place; a second time
// changes nothing.
//
// Traffic      4 bytes an element read, and as many written where it was 0.
// Stream       Enqueued on `stream`; allocates nothing and never waits.
// Determinism  Same bits on every device.
// Errors       InvalidArgument naming argument and value, before anything is enqueued: null with
//              elements, negative size, misaligned address, memory known as another device's.
absl::Status FreezeMoment(float* second_moment, int64_t size, device::Stream& stream);

}  // namespace brigade::optim

#endif  // BRIGADE_OPTIM_FREEZE_MOMENT_H_
