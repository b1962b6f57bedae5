#ifndef BRIGADE_TESTS_PARALLEL_TENSOR_TEST_PEER_H_
#define BRIGADE_TESTS_PARALLEL_TENSOR_TEST_PEER_H_

#include "brigade/parallel/tensor/exchange.h"
#include "brigade/parallel/tensor/shard_sums.h"

namespace brigade::parallel {

// Changes sums in ways that only a test wants.
class ShardSumsTestPeer {
 public:
  static void OmitWait(ShardSums& sums, internal::WaitPoint point) {
    sums.exchange_->OmitWait(point);
  }
};

}  // namespace brigade::parallel

#endif  // BRIGADE_TESTS_PARALLEL_TENSOR_TEST_PEER_H_
