#ifndef BRIGADE_TESTS_ZERO_TEST_PEER_H_
#define BRIGADE_TESTS_ZERO_TEST_PEER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/one_bit_lamb/one_bit_lamb_math.h"
#include "brigade/zero/internal/gradient_exchange.h"
#include "brigade/zero/internal/gradient_store.h"
#include "brigade/zero/internal/loco_errors.h"
#include "brigade/zero/internal/sharded_update.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/plan/exchange_layout.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::zero {

// Changes a ZeroOptimizer in ways that only a test wants.
class ZeroOptimizerTestPeer {
 public:
  static void OmitWait(ZeroOptimizer& zero, internal::WaitPoint point) {
    zero.streams_->OmitWait(point);
  }
  // With offload: the host's own work.
  static device::Stream& HostStream(ZeroOptimizer& zero) { return zero.streams_->host(); }
  // Where gradients are exchanged, and the own ones of a rank.
  static const internal::GradientExchange& Exchange(ZeroOptimizer& zero) {
    return *zero.update_->exchange();
  }
  // Of 1-bit LAMB's tensors.
  static absl::Span<const kernels::OneBitLambNumbers> Numbers(ZeroOptimizer& zero) {
    return zero.update_->numbers();
  }
  static const void* OwnGradient(ZeroOptimizer& zero, int bucket) {
    return zero.gradients_->FinalWhole(bucket);
  }
  // This rank's slice of a bucket's gradients, summed over all, in stages 1 to 3 without offload.
  static const void* SummedSlice(ZeroOptimizer& zero, int bucket) {
    return zero.gradients_->FinalSlice(bucket);
  }
  static const internal::LocoErrors& Loco(ZeroOptimizer& zero) { return *zero.gradients_->loco(); }
  // The optimizer's streams but the compute stream.
  static std::vector<device::Stream*> Streams(ZeroOptimizer& zero) { return zero.streams_->Own(); }
};

// The bytes of what a rank's exchanges have left out, of all buckets; empty without exchanges.
inline std::string LeftOut(ZeroOptimizer& zero) {
  std::string bytes;
  const ZeroOptions& options = zero.options();
  for (size_t b = 0; b < zero.plan().buckets().size(); ++b) {
    const Bucket& bucket = zero.plan().buckets()[b];
    if (!bucket.trainable || !internal::HasErrors(zero.plan(), options)) continue;
    const auto errors = ZeroOptimizerTestPeer::Exchange(zero).ErrorsOf(static_cast<int>(b));
    const auto layout = internal::ErrorLayoutOf(zero.plan(), options, bucket, zero.rank());
    for (const auto& [values, count] :
         {std::pair(errors.own, layout.own.size), std::pair(errors.second, layout.second.size)}) {
      bytes.append(reinterpret_cast<const char*>(values),
                   static_cast<size_t>(count) * sizeof(float));
    }
  }
  return bytes;
}

}  // namespace brigade::zero

#endif  // BRIGADE_TESTS_ZERO_TEST_PEER_H_
