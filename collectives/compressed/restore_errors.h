#ifndef BRIGADE_COLLECTIVES_COMPRESSED_RESTORE_ERRORS_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_RESTORE_ERRORS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/collectives/compressed/restore_errors_math.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// If the exchange is void: error[i] = saved[i], for `size` elements. Otherwise nothing is written.
//
// Traffic      A scale of each message; 8 bytes an element if the exchange is void.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. Scales and
//              flags are read when the work runs.
// Determinism  Same bits on every device.
// Errors       InvalidArgument naming argument and value, before anything is enqueued: null,
//              misaligned address, negative size, overlap, memory known as another device's, a
//              stride that is no multiple of 64.
absl::Status RestoreErrors(const ErrorExchange& exchange, const float* saved, float* error,
                           int64_t size, device::Stream& stream);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_RESTORE_ERRORS_H_
