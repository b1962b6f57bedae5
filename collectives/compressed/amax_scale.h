#ifndef BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/collectives/compressed/amax_scale_math.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::collectives {

// *result = {2^k, 2^-k}, for sums of `terms` values that are at most *amax: k is the largest
// integer with
//
//   2^k * 2^ceil(log2 terms) * 2^e <= L,   where e is the smallest one >= -126 with *amax < 2^e,
//
// clamped to [-126, 126], and 0 where *amax is 0, infinite or NaN. L is half of where the wire's
// range ends, 2^15 for float16 and 2^127 for bfloat16: no sum comes to more, and the other half is
// for its roundings, one at each addition or one in all. A power of two scales exactly where the
// product is a normal float.
//
// Stream       Enqueued on `stream`; allocates nothing and never waits. *amax, not negative, is
//              read when the work runs.
// Determinism  Same bits on every device.
// Errors       InvalidArgument naming argument and value, before anything is enqueued: null,
//              misaligned address, overlap, memory known as another device's, fewer than 1 term, a
//              wire that is not of 16 bits.
absl::Status ChooseAmaxScale(const float* amax, int64_t terms, precision::DType wire,
                             AmaxScale* result, device::Stream& stream);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_AMAX_SCALE_H_
