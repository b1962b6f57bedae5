#ifndef BRIGADE_ZERO_INTERNAL_STATE_TRANSFER_H_
#define BRIGADE_ZERO_INTERNAL_STATE_TRANSFER_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/device/buffer.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/internal/parameter_store.h"
#include "brigade/zero/internal/rank_file.h"
#include "brigade/zero/internal/saved_errors.h"
#include "brigade/zero/internal/sharded_update.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// Copies parameters and optimizer state between a ZeroOptimizer and host memory, bucket by bucket
// or chunk by chunk, so that no rank ever holds the whole model. The contracts of the calls are in
// zero_optimizer.h. Of the step state only the file's copy is written here; the rest is the
// caller's (ZeroOptimizer::LoadStepState).
//
// `ready` is whether this rank may make the call now. An error of it is an error of the call on all
// ranks.
class StateTransfer {
 public:
  using StateReader =
      absl::FunctionRef<absl::Status(int bucket, int array, ElementRange range, void* values)>;

  // `file`, `errors`: null without them.
  StateTransfer(const Plan& plan, const ZeroOptions& options, RankFile* file, StepStreams& streams,
                ParameterStore& parameters, ShardedUpdate& update, SavedErrors* errors)
      : plan_(plan),
        options_(options),
        file_(file),
        streams_(streams),
        parameters_(parameters),
        update_(update),
        errors_(errors) {}

  absl::Status InitializeParameters(
      const absl::Status& ready, const kernels::StepState& step,
      absl::FunctionRef<absl::Status(int parameter, absl::Span<float> values)> write);
  absl::Status ExportParameters(
      const absl::Status& ready,
      absl::FunctionRef<absl::Status(int parameter, absl::Span<const float> values)> read);
  absl::Status Load(const absl::Status& ready, const kernels::StepState& step, int64_t chunk_bytes,
                    StateReader read);

  // Enqueues on `stream` a copy of elements of this rank's slice of one of the bucket's arrays, of
  // a frozen bucket the weights, to the host.
  absl::Status Copy(int bucket, int array, ElementRange range, void* to, device::Stream& stream);

 private:
  class Chunks;

  // This rank's slice of one of the bucket's arrays; null where that is in the file.
  void* OwnState(int bucket, int array) const;
  // Errors never are.
  bool IsInFile(const Bucket& bucket, int array = 0) const {
    if (bucket.trainable && array >= update_.arrays()) return false;
    return bucket.trainable ? options_.offload.file_state() : options_.offload.file_parameters();
  }

  // A call of all ranks: memory for the largest bucket in float32, or the first error of any rank.
  absl::StatusOr<device::Buffer> AllocateWholeOnAllRanks(const absl::Status& ready,
                                                         collectives::Communicator& ranks);
  absl::Status WriteSlice(int bucket, const float* values);
  absl::Status ReadSlice(int bucket, float* values);
  absl::Status SetBucket(int bucket, const float* whole);
  absl::Status SetState(int bucket, const float* master);
  absl::Status ReadMaster(int bucket, float* target);
  // How many arrays the bucket's state has.
  int ArraysOf(const Bucket& bucket) const { return bucket.trainable ? update_.saved_arrays() : 1; }
  absl::Status AwaitState();
  // Those that are not in the file.
  absl::Status WriteSlices(int bucket, StateReader read, Chunks& chunks);
  absl::Status FillSlices(int bucket, StateReader read, int64_t chunk_bytes);
  absl::Status ShareBucket(int bucket);

  const Plan& plan_;
  const ZeroOptions& options_;
  RankFile* const file_;
  StepStreams& streams_;
  ParameterStore& parameters_;
  ShardedUpdate& update_;
  SavedErrors* const errors_;
};

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_INTERNAL_STATE_TRANSFER_H_
