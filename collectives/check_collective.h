#ifndef BRIGADE_COLLECTIVES_CHECK_COLLECTIVE_H_
#define BRIGADE_COLLECTIVES_CHECK_COLLECTIVE_H_

#include "absl/status/status.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/device.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// Everything that rank `rank` of `size` can know to be wrong with a call of a communicator on `device`: InvalidArgument
// naming the call, the argument and its value.
absl::Status CheckCollective(const Collective& collective, int rank, int size,
                             device::Device device, device::Stream& stream);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_CHECK_COLLECTIVE_H_
