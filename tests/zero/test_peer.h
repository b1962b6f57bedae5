#ifndef BRIGADE_TESTS_ZERO_TEST_PEER_H_
#define BRIGADE_TESTS_ZERO_TEST_PEER_H_

#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::zero {

// Changes a ZeroOptimizer in ways that only a test wants.
class ZeroOptimizerTestPeer {
 public:
  static void OmitWait(ZeroOptimizer& zero, internal::WaitPoint point) {
    zero.streams_->OmitWait(point);
  }
};

}  // namespace brigade::zero

#endif  // BRIGADE_TESTS_ZERO_TEST_PEER_H_
