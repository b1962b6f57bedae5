#ifndef BRIGADE_PARALLEL_PASS_COLLECTIVE_H_
#define BRIGADE_PARALLEL_PASS_COLLECTIVE_H_

#include <cstdint>

#include "brigade/collectives/collective.h"
#include "brigade/parallel/grid.h"

namespace brigade::parallel {

// A call of one of a rank's groups, that a model's passes make so often. With 0 times its
// communicator has memory for it.
struct PassCollective {
  GridGroup group = GridGroup::kTensor;
  collectives::CollectiveSignature signature = {};
  int64_t times = 0;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PASS_COLLECTIVE_H_
