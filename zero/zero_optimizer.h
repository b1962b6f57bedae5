#ifndef BRIGADE_ZERO_ZERO_OPTIMIZER_H_
#define BRIGADE_ZERO_ZERO_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/optim/step_controller.h"
#include "brigade/zero/internal/gradient_store.h"
#include "brigade/zero/internal/parameter_store.h"
#include "brigade/zero/internal/sharded_update.h"
#include "brigade/zero/internal/step_streams.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/plan/traffic.h"
#include "brigade/zero/state.h"

namespace brigade::zero {

// One rank's share of training a model in mixed precision, in any ZeRO stage. A step is
//
//   for each micro-batch:
//     for unit in order:            Acquire(unit, kForward);  read Weights(p);  Release(unit)
//     ScaleLoss
//     for unit in reverse order:    Acquire(unit, kBackward); read Weights(p);  Release(unit)
//                                   write what Gradient(unit, p) names;  GradientsReady(unit)
//     FinishBackward()
//   Step()
//
// where reading and writing is work on the compute stream. What nobody wrote counts as zero. All ranks make the same
// calls in the same order, but for Gradient; and in stages 0 to 2 GradientsReady, which may come in any order as far
// as there is memory (live_units). In stages 0 and 1 units need not be reported where nothing was written.
//
// Precision    Stages give the same bits, those of tests/spec/stages.h with Reduction::kRoundedOnce. Gradients are
//              reduced in their own type (over several micro-batches: Accumulation says when, and in which), updated
//              in fp32.
// Memory       Device memory, all of it at Create: MemoryOf (memory_model.h) says how much, and what for. Beside it one
//              bucket in float32 while parameters or state go in or out.
// Traffic      Sent per rank, with N ranks, in a step of one micro-batch: 2 (N-1)/N of the trainable parameters with
//              padding in stages 0 to 2, 3 (N-1)/N of all in stage 3 (tied ones count for each use, persistent ones
//              2), plus 16 (N-1) bytes for each type of gradient. More micro-batches: another (N-1)/N of the
//              gradients for each, or one reduction in the accumulator's type (kAtBoundary); stage 3 gathers for each.
// Stream       Everything is enqueued: on the compute stream, and with overlap_comm on one of its own; host waits and
//              allocations are none in a step. Calls that wait say so.
// Determinism  Same bits in every stage, on every engine and device, with and without overlap, for any plan
//              options but bucket_elements and ranks, which change the order in which the norm is summed.
// Errors       InvalidArgument and FailedPrecondition, naming parameter, unit and stage, for a call that is wrong or out
//              of turn: nothing happens. The communicator's errors end the step on all ranks; what this rank has
//              can still be saved.
// Threads      One at a time.
class ZeroOptimizer {
 public:
  // A call of all ranks; waits. `communicator`, `context` and `compute` must outlive it. Weights and optimizer state
  // are zero until InitializeParameters or LoadState. InvalidArgument on all ranks, naming the first parameter, if
  // ranks disagree about the model or the options; ResourceExhausted on all if one has not enough memory.
  static absl::StatusOr<std::unique_ptr<ZeroOptimizer>> Create(
      const ModelSpec& model, const ZeroOptions& options, collectives::Communicator& communicator,
      device::Context& context, device::Stream& compute);

  const Plan& plan() const { return plan_; }
  const ZeroOptions& options() const { return options_; }

  // A call of all ranks; waits. Rank 0's `write(parameter, values)` is called for each parameter in host memory, in the
  // order of the buckets; all ranks get those values, and a new run's optimizer state.
  absl::Status InitializeParameters(
      absl::FunctionRef<absl::Status(int parameter, absl::Span<float> values)> write);

  // A call of all ranks; waits. Calls `read(parameter, values)` with the fp32 master (the weights of a frozen
  // parameter) in host memory, on every rank, in the order of the buckets.
  absl::Status ExportParameters(
      absl::FunctionRef<absl::Status(int parameter, absl::Span<const float> values)> read);

  absl::Status Acquire(int unit, Pass pass);
  absl::Status Release(int unit);

  // The weights of a parameter that an acquired unit uses, [size] of its type, device memory: read by what is
  // enqueued on the compute stream until the Release.
  absl::StatusOr<const void*> Weights(int parameter) const;

  // scaled = loss * loss scale, [count] of `dtype`, on the compute stream; what backward begins with.
  absl::Status ScaleLoss(const void* loss, void* scaled, int64_t count, precision::DType dtype);

  absl::StatusOr<GradientTarget> Gradient(int unit, int parameter);
  absl::Status GradientsReady(int unit);

  // The micro-batch's backward is enqueued.
  absl::Status FinishBackward();

  // The update. FailedPrecondition before all micro-batches' backward, or with a unit acquired.
  absl::Status Step();

  // Goes back to before the step's first micro-batch: gradients are dropped, units released, and what failed on the
  // streams is forgotten. For going on after a mistake in a call or in the caller's own work; all ranks call it. What
  // Step has enqueued may have happened or not. A communicator that has failed stays so. Waits.
  absl::Status CancelStep();

  // What this rank owns, in host memory; waits. Its own business: works also after the communicator has failed.
  // FailedPrecondition between a micro-batch and its Step.
  absl::StatusOr<RankState> SaveState();
  // A call of all ranks; waits. From states of the same model, plan and step, each of its rank, saved in any stage.
  // InvalidArgument naming what differs, on all ranks, with nothing changed.
  absl::Status LoadState(const RankState& state);

  // Loss scale, gradient norm and step, read later (RequestState, TakeState), and changes of the learning rate: enqueue
  // them on step_stream().
  optim::StepController& controller() { return update_->controller(); }
  device::Stream& step_stream() { return streams_->comm(); }

  const Traffic& traffic() const { return streams_->traffic; }

 private:
  ZeroOptimizer(Plan plan, const ZeroOptions& options);

  absl::Status Allocate();
  void Free();
  absl::Status CheckUnit(const char* call, int unit) const;
  absl::Status CheckParameter(const char* call, int parameter) const;
  absl::Status Out(const char* call, int unit, const absl::Status& status) const;
  absl::Status CheckBetweenSteps(const char* call) const;

  // transfer.cc
  absl::StatusOr<device::Buffer> NewWhole(const char* call) const;
  absl::Status SetBucket(int bucket, const float* whole);
  absl::Status ReadSlice(int bucket, int array, float* target);
  float* OwnSlice(int bucket, int array) const;
  absl::Status CheckState(const RankState& state) const;

  const Plan plan_;
  const ZeroOptions options_;
  std::unique_ptr<internal::StepStreams> streams_;
  std::unique_ptr<internal::ParameterStore> parameters_;
  std::unique_ptr<internal::GradientStore> gradients_;
  std::unique_ptr<internal::ShardedUpdate> update_;
  std::unique_ptr<device::Event> finished_;  // backward, on the compute stream
  std::unique_ptr<device::Event> decided_;   // the step, on the communication stream
  bool in_backward_ = false;  // a gradient of this micro-batch was asked for or reported
};

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_ZERO_OPTIMIZER_H_
