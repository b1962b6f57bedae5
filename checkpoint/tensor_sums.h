#ifndef BRIGADE_CHECKPOINT_TENSOR_SUMS_H_
#define BRIGADE_CHECKPOINT_TENSOR_SUMS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/checkpoint/layout.h"
#include "brigade/collectives/communicator.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::checkpoint {

// The checksums of all tensors, from those of the pieces of all ranks: `mine` are this rank's, in
// the order of layout.PiecesOf. A call of all ranks, on the host; errors are the communicator's.
absl::StatusOr<std::vector<uint32_t>> TensorSums(const Layout& layout, const zero::Plan& plan,
                                                 const std::vector<uint32_t>& mine,
                                                 collectives::Communicator& communicator);

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_TENSOR_SUMS_H_
