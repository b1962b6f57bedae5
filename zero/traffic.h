#ifndef BRIGADE_ZERO_TRAFFIC_H_
#define BRIGADE_ZERO_TRAFFIC_H_

#include <cstdint>

namespace brigade::zero {

// Payload bytes that a rank has sent, by what for. Their sum is what its communicator counts.
struct Traffic {
  int64_t gradients = 0;
  int64_t parameters = 0;
  int64_t scalars = 0;  // each step's statistics
  int64_t setup = 0;    // the plan's check, the initial broadcast, export and import

  int64_t total() const { return gradients + parameters + scalars + setup; }
};

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_TRAFFIC_H_
