#ifndef BRIGADE_ZERO_INTERNAL_STATE_TRANSFER_H_
#define BRIGADE_ZERO_INTERNAL_STATE_TRANSFER_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/zero/internal/parameter_store.h"
#include "brigade/zero/internal/sharded_update.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/rank_state.h"

namespace brigade::zero::internal {

// Copies parameters and optimizer state between a ZeroOptimizer and host memory, bucket by bucket,
// so that no rank ever holds the whole model. The contracts of the calls are in zero_optimizer.h.
//
// `ready` is whether this rank may make the call now. An error of it is an error of the call on all
// ranks.
class StateTransfer {
 public:
  StateTransfer(const Plan& plan, const ZeroOptions& options, StepStreams& streams,
                ParameterStore& parameters, ShardedUpdate& update)
      : plan_(plan),
        options_(options),
        streams_(streams),
        parameters_(parameters),
        update_(update) {}

  absl::Status InitializeParameters(
      const absl::Status& ready,
      absl::FunctionRef<absl::Status(int parameter, absl::Span<float> values)> write);
  absl::Status ExportParameters(
      const absl::Status& ready,
      absl::FunctionRef<absl::Status(int parameter, absl::Span<const float> values)> read);
  absl::StatusOr<RankState> Save();
  absl::Status Load(const absl::Status& ready, const RankState& state);

 private:
  // Memory for the largest bucket in float32.
  absl::StatusOr<device::Buffer> AllocateWhole() const;
  // A call of all ranks: the same, or the first error of any rank.
  absl::StatusOr<device::Buffer> AllocateWholeOnAllRanks(const absl::Status& ready);
  absl::Status SetBucket(int bucket, const float* whole);
  absl::Status ReadSlice(int bucket, int array, float* target);
  float* OwnSlice(int bucket, int array) const;
  absl::Status Check(const RankState& state) const;

  const Plan& plan_;
  const ZeroOptions& options_;
  StepStreams& streams_;
  ParameterStore& parameters_;
  ShardedUpdate& update_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_STATE_TRANSFER_H_
