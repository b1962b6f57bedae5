#ifndef BRIGADE_COLLECTIVES_TUNING_AUTO_ALGORITHM_H_
#define BRIGADE_COLLECTIVES_TUNING_AUTO_ALGORITHM_H_

#include <array>
#include <cstdint>

#include "brigade/collectives/collective.h"
#include "brigade/collectives/tuning/topology.h"

namespace brigade::collectives {

// What kAuto stands for on a topology, by the cost model.
//
// Sizes        A power of two of bytes and what is below it, down to the next one, are treated
//              alike.
// Allocation   None, and a few nanoseconds, for a size that was asked for before.
// Threads      One at a time.
class AutoAlgorithm {
 public:
  // The topology is valid.
  explicit AutoAlgorithm(Topology topology);

  // The cheapest program for a collective that has algorithms and, if it adds, is not to be rounded
  // once. All ranks choose alike, because the model depends on nothing but the topology and the
  // signature.
  Algorithm Choose(const CollectiveSignature& signature);

 private:
  Algorithm Ask(const CollectiveSignature& signature, int64_t bytes) const;

  const Topology topology_;
  const int ranks_;
  // [kind][whether partial sums take twice the bytes][power of two]; kAuto: not yet known.
  std::array<std::array<std::array<Algorithm, 64>, 2>, 3> chosen_ = {};
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_TUNING_AUTO_ALGORITHM_H_
