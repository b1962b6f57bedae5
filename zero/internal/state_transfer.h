#ifndef BRIGADE_ZERO_INTERNAL_STATE_TRANSFER_H_
#define BRIGADE_ZERO_INTERNAL_STATE_TRANSFER_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/device/event.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/internal/parameter_store.h"
#include "brigade/zero/internal/sharded_update.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// Copies parameters and optimizer state between a ZeroOptimizer and host memory, bucket by bucket
// or in chunks, so that no rank ever holds the whole model. The contracts of the calls are in
// zero_optimizer.h.
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
  // Of this rank, in device memory: ZeroOptimizer::OwnState.
  void* OwnState(int bucket, int array) const;
  absl::Status Load(
      const absl::Status& ready, const kernels::StepState& state,
      absl::FunctionRef<absl::Status(int bucket, int array, ElementRange range, void* values)>
          read);

 private:
  // What a part of the state passes through: of this rank, on the host, in turn; of all ranks, on
  // the device.
  struct Chunk {
    struct Host {
      device::Buffer memory;
      // Nothing is copied from it any more.
      std::unique_ptr<device::Event> copied;
    };
    // Of each rank.
    int64_t elements = 0;
    device::Buffer all;
    std::array<Host, 2> hosts;
  };

  // Memory for the largest bucket in float32.
  absl::StatusOr<device::Buffer> AllocateWhole() const;
  // Calls of all ranks: the same, or the first error of any rank.
  absl::StatusOr<device::Buffer> AllocateWholeOnAllRanks(const absl::Status& ready);
  absl::StatusOr<Chunk> AllocateChunk(const absl::Status& ready);
  absl::Status SetBucket(int bucket, const float* whole);
  absl::Status SetRange(int bucket, int array, ElementRange range, const void* mine, Chunk& chunk);
  absl::Status ReadMaster(int bucket, float* target);

  const Plan& plan_;
  const ZeroOptions& options_;
  StepStreams& streams_;
  ParameterStore& parameters_;
  ShardedUpdate& update_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_STATE_TRANSFER_H_
