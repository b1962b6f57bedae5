#ifndef BRIGADE_COLLECTIVES_CHECK_COLLECTIVE_H_
#define BRIGADE_COLLECTIVES_CHECK_COLLECTIVE_H_

#include "absl/status/status.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/device.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// What is wrong with a call in a group of `size` whatever its arrays: InvalidArgument naming the
// call and the value.
absl::Status CheckSignature(const CollectiveSignature& signature, int size);

// What rank `rank` can know to be wrong with the rest of a call of a communicator on `device`:
// InvalidArgument naming the call, the argument and its value.
absl::Status CheckArguments(const Collective& collective, int rank, int size, device::Device device,
                            device::Stream& stream);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_CHECK_COLLECTIVE_H_
