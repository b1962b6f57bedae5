#ifndef BRIGADE_ZERO_ZERO_OPTIMIZER_H_
#define BRIGADE_ZERO_ZERO_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/movement.h"
#include "brigade/zero/plan/plan.h"
#include "brigade/zero/plan/traffic.h"
#include "brigade/zero/step.h"
#include "brigade/zero/step_observer.h"

namespace brigade::collectives {
class Communicator;
}
namespace brigade::device {
class Context;
class Event;
class FileStore;
class Stream;
}  // namespace brigade::device
namespace brigade::optim {
class StepController;
}

namespace brigade::zero {
namespace internal {
class GradientStore;
class ParameterStore;
class RankFile;
class SavedErrors;
class ShardedUpdate;
class StateLoan;
class StateTransfer;
class StepStreams;
}  // namespace internal

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
// where reading and writing is work on the compute stream; a UnitScope (step.h) pairs Acquire with
// Release. A stage of a pipeline has its units in chunks (ZeroOptions::chunks), each with passes
// and micro-batches of its own, FinishBackward(chunk), that come in any order across chunks; in
// stage 3 it says by BeginRun and EndRun which passes of a chunk come one after another, so that
// weights are gathered once for all of them (ZeroOptions::runs). A gradient that no unit has asked
// for counts as zero. All ranks make the same calls in the same order, except Gradient; and in
// stages 0 to 2 GradientsReady, which may come in any order as far as there is memory (live_units)
// while none of another chunk comes between. In stages 0 and 1 a unit without gradients need not be
// reported. A backward pass that makes activations again uses units again: the order of all its
// uses is then an option (backward_units).
//
// Precision    Stages give the same bits, those of tests/spec/stages.h with
//              Reduction::kRoundedOnce. Gradients are reduced in their own type (over several
//              micro-batches: Accumulation says when, and in which type), and the update is in
//              fp32.
// Memory       Of the device and of the host, all of it at Create, the communicator's workspace for
//              the step's collectives included: MemoryOf (plan/memory_model.h) says how much of
//              each, and what for.
//              While parameters go in or out, one bucket in float32 more, and where slices are
//              elsewhere two slices of the largest, on the host; while state is loaded, only the
//              workspace of stage 0's gathers, and for a GPU two chunks on the host.
// Traffic      TrafficOfStep (plan/traffic.h) says what each rank sends. With N ranks and
//              algorithms that send each part once, in a step of one micro-batch: 2 (N-1)/N of the
//              trainable parameters with padding in stages 0 to 2, 3 (N-1)/N of all in stage 3
//              (tied ones count for each use, persistent ones 2; a unit that backward_units name
//              again, another (N-1)/N; with runs a chunk's weights once for each of its runs), plus
//              16 (N-1) bytes for each type of gradient (N: of the world). More
//              micro-batches: another (N-1)/N of the gradients for each, or one reduction in the
//              accumulator's type (kAtBoundary); stage 3 gathers for each.
//              Algorithm::kAuto chooses at Create; a topology that comes later changes nothing.
// Stream       All work is enqueued: on the compute stream, with overlap_comm on a stream of the
//              optimizer's own, and with offload on up to seven more. A step has no host waits, and
//              allocates nothing once the queues have been at their deepest (docs/device.md, rule
//              18). Calls that wait say so.
// Determinism  Same bits in every stage, on every engine and device, with and without overlap and
//              offload, for any options of the plan except bucket_elements and ranks, also of the
//              world, which change the order in which the norm is summed: in double, so that with
//              N elements it changes by at most 2 N 2^-53 of itself.
// Errors       InvalidArgument and FailedPrecondition, naming parameter, unit and stage, for a call
//              that is wrong or out of turn: nothing happens. The communicator's errors end the
//              step on all ranks. Some engines tell them neither on the call nor on the streams:
//              wait by Communicator::Synchronize. In a step they never damage the state that this
//              rank owns: either nothing of the update is done, or all of it; the step state says
//              which. CancelStep, then LendState give it, on every engine. Weights and gradients
//              are not defined after such an error, nor is the state after one in
//              InitializeParameters or LoadState.
// Tied         With tied_apart the parts of a tied parameter's gradient are added in Step, on the
//              communication stream, before gradients are checked; what is tied outside then is
//              added to the other group's over OuterGroups::tied, which both groups' Steps need.
//              The two copies keep the same bits where they begin with the same.
// Near         With ZeroOptions::hpz_ranks, h, weights of stage 3 have second slices on the device,
//              1/h of the weights' bytes more. Then each backward use sends (N-1)/N of the weights
//              less, and (h-1)/h to the near ranks.
// Compressed   With ZeroOptions::gradient_compression Step exchanges gradients itself, behind the
//              check, and keeps errors in memory of its own beside the state. A step that is
//              skipped keeps each of their bits, whichever rank has met the overflow. After an
//              error of the communicator they may be those of a step that was not taken, or of
//              none.
// Local        With the optimizer ZeroOneAdam ranks of stage 0 may have masters, weights and first
//              moments of their own between meetings, which passes, ExportParameters and StateArray
//              see. ShareErrors makes them those of all ranks. LendState without it, behind
//              CancelStep, takes this rank's masters and weights back to the last meeting.
// Groups       With ZeroOptions::shard_ranks groups of ranks have a whole state each, and `N` above
//              is the number of ranks of a group, but for the statistics. The sums of groups are
//              rounded to the type of the final gradient, and added over OuterGroups::between: each
//              bucket's on a stream of its own, beside the sums inside the group that follow. All
//              groups have the same bits. They are those of one group where there is one, and those
//              of stage 0 with as many ranks where groups have one rank; there, over several
//              micro-batches, of sums kAtBoundary. Calls of all ranks are those of all groups, as
//              with a world of several.
// World        With ZeroOptions::model_ranks groups hold parts of one model. Create, Step,
//              InitializeParameters and LoadState are then calls of all ranks of the world; the
//              others, and all other collectives, are the group's. An error that a group meets
//              elsewhere ends the group: its ranks end the world too (parallel::Grid::Abort), or
//              the others wait for them in Step. A group's failure that shows on NCCL after Step is
//              enqueued may let the other groups take that step.
// Threads      One at a time, but for ReturnState.
class ZeroOptimizer final : public ParameterSource {
 public:
  // A call of all ranks; waits. `communicator`, `context` and `compute` must outlive the optimizer.
  // The communicator must have Communicator::AllGatherHost (NCCL: a side channel), by which ranks
  // tell each other of errors without device memory. Weights and optimizer state are zero until
  // InitializeParameters or LoadState. InvalidArgument on all ranks, naming the first parameter, if
  // ranks disagree about the model or the options; ResourceExhausted on all if one has not enough
  // memory, naming, of a tier's limit, what is needed for what.
  // `outer.between`: with ZeroOptions::shard_ranks the ranks that have this one's place in the
  // groups; `communicator` is then a group, and `outer.world` is given too. InvalidArgument on all
  // ranks unless all groups have so many ranks, the same model and the same options.
  // `outer.near`: with ZeroOptions::hpz_ranks so many ranks of the group, from a multiple of that
  // number on. InvalidArgument on all ranks otherwise.
  // `outer.world`: with ZeroOptions::model_ranks the ranks of all groups, which make the call
  // together, each with it. Null: `communicator`. Groups have models of their own, with as many
  // types of gradients; whether a step overflows, its norm, and all that follows of it are the
  // world's. InvalidArgument for a world of another number of ranks. `outer.tied`: there exactly if
  // a trainable parameter is tied outside; of two ranks of the world, each with as many in its
  // group and the same place there. InvalidArgument on all ranks of the world otherwise, and if the
  // two disagree about those parameters, or not one of the two counts each; names them.
  static absl::StatusOr<std::unique_ptr<ZeroOptimizer>> Create(
      const ModelSpec& model, const ZeroOptions& options, collectives::Communicator& communicator,
      device::Context& context, device::Stream& compute, const OuterGroups& outer = {});

  ~ZeroOptimizer() override;

  const Plan& plan() const { return plan_; }
  // In its group, whose size is the plan's; and which of the groups with a whole state that is.
  int rank() const;
  int shard_group() const;
  const ZeroOptions& options() const { return options_; }

  // A call of all ranks; waits. `write(parameter, values)` of rank 0, with several groups that of
  // the first one, is called for each parameter in host memory, in the order of the buckets; all
  // ranks get those values, and the optimizer state of a new run.
  absl::Status InitializeParameters(
      absl::FunctionRef<absl::Status(int parameter, absl::Span<float> values)> write);

  // A call of all ranks; waits. Calls `read(parameter, values)` with the fp32 master (the weights
  // of a frozen parameter) in host memory, on every rank, in the order of the buckets.
  absl::Status ExportParameters(
      absl::FunctionRef<absl::Status(int parameter, absl::Span<const float> values)> read);

  absl::Status Acquire(int unit, Pass pass) override;
  absl::Status Release(int unit) override;
  absl::StatusOr<const void*> Weights(int parameter) const override;
  precision::DType TypeOf(int parameter) const override;
  absl::StatusOr<GradientTarget> Gradient(int unit, int parameter) override;
  absl::Status GradientsReady(int unit) override;

  // scaled = loss * loss scale, [count] of `dtype`, on the compute stream: what the backward pass
  // begins with.
  absl::Status ScaleLoss(const void* loss, void* scaled, int64_t count, precision::DType dtype);

  // The backward pass of the chunk's micro-batch is enqueued.
  absl::Status FinishBackward(int chunk = 0);

  // Around a run: passes of a chunk that come one after another. All ranks make the calls at the
  // same place among the others. In stage 3 BeginRun gathers the weights of all units of the chunk,
  // which stay until EndRun, and those of the next run ahead, unless an update comes before it;
  // Acquire then waits for them, and gathers nothing. In the other stages runs cost nothing.
  // Outside of runs, as for an evaluation between two steps, units are acquired one by one as
  // without them. FailedPrecondition naming both for a chunk that is not the next of
  // ZeroOptions::runs, for a run in a run or without its end, while a unit is acquired, and in a
  // run for Acquire of another chunk's unit.
  absl::Status BeginRun(int chunk);
  absl::Status EndRun();

  // The update. FailedPrecondition before the backward pass of all micro-batches of all chunks,
  // before all runs are made, or while a unit is acquired.
  absl::Status Step();

  // The next step, and no other, shows its gradients and weights to `observer`, which stays until
  // that is enqueued; null: to nobody. Between steps. Weights that are kept elsewhere
  // (OffloadOptions::parameters) come to the device once more for it, which Movement does not
  // count. With local steps (has_local_steps) each rank has weights of its own, and shows these.
  // Where gradients are exchanged, not reduced, none are shown.
  absl::Status Observe(StepObserver* observer);

  // Goes back to before the step's first micro-batch: gradients are dropped, units released, runs
  // begin again, and errors of the streams cleared. For going on after a wrong call or an error in
  // the caller's own work; a call of all ranks. The work that Step has enqueued may have run or
  // not. With state in a file, a step that could not be written to its end is taken back on that
  // rank, state and step state: LoadState, from what CopyState gives or a checkpoint, then comes
  // before the next Acquire, which is FailedPrecondition until then. A communicator that has failed
  // stays so. Waits.
  absl::Status CancelStep();

  // What a rank owns of an array of a bucket, in any stage: [plan().slice(bucket)], with padding,
  // in memory of the device, of the host, or in a file. Array 0 is the fp32 master, of a frozen
  // bucket the weights in the bucket's type; 1 and more, of the others, are the fp32 moments, or
  // what StateArrayType says: where moments are codes, both of these, and a scale of each for every
  // 256. `range` is of elements of the array. Enqueues on `reader`, to which the state is lent, a
  // copy of elements of it to page-locked memory.
  absl::Status CopyState(int bucket, int array, ElementRange range, void* to,
                         device::Stream& reader);
  // The master and the moments, what is attached, then those of errors (ShareErrors).
  int state_arrays() const;
  // The type of such an array, and the elements of a slice for each of the array's; 0: a bucket
  // whose moments are no codes has no scales.
  optim::MomentArray StateArrayType(int bucket, int array) const;
  // How many of these are of errors: with gradient_compression two, with loco one.
  int error_arrays() const;

  // With exchanges (ZeroOptions::exchanges) or loco, a call of all ranks between steps, enqueued,
  // before LendState or CopyState: each rank's own errors become the mean of all ranks' errors,
  // which is all that their sum over time depends on, so that any number of ranks can go on from
  // what is saved, and this run goes on as one that has loaded it. With gradient_compression the
  // last two arrays of state are then the mean, and the errors of sums, or with kPowerSgd the
  // factors with which the next exchange begins, in the first elements of their parameters; all
  // else in them is 0. With loco the last one is the sum of all errors, divided by what gradients
  // are divided by and by the loss scale; what int8 codes leave out of a rank's share is lost.
  // Sends 12 bytes an element at most, which count as setup. Without errors, and where no step has
  // changed them since, nothing happens. With local steps (ZeroOptions::has_local_steps) ranks meet
  // first, by moves that cross as they are, 8 bytes an element more: all have the same state then.
  absl::Status ShareErrors();

  // Lends this state, and controller().state(), to one who copies it beside the passes that follow:
  // what `reader` runs until ReturnState sees it as the updates that are enqueued now leave it. The
  // next update waits on the device for what `reader` has enqueued by ReturnState, which may come
  // from any thread; until it comes Step waits on the host (state_wait_ns). An error of `reader` is
  // then the step's. A second reader waits for the first. No collective calls: they work also after
  // the communicator has failed and CancelStep, when the state is that of before or after the step
  // that failed, and ranks may differ by this step.
  // FailedPrecondition between a micro-batch and its Step, for a state that is lent, or is not, and
  // where a step has changed errors since ShareErrors. After CancelStep they are lent as they were
  // shared last, those of loco as zeros, with which that goes on.
  absl::Status LendState(device::Stream& reader);
  absl::Status ReturnState();
  // How long Step has waited for ReturnState since Create, in nanoseconds.
  int64_t state_wait_ns() const;

  // A call of all ranks; waits. From a state of the same model and optimizer, of any stage and
  // number of ranks: `read(bucket, array, range, values)` gives elements of what CopyState names,
  // on the host, [range.size] of its type; bucket by bucket, array by array (of a state in a file
  // within each chunk), of each array in ascending ranges that count from where it begins. A range
  // has `chunk_bytes`, cut to whole units of 256 of which it has one at least, or what is left. On
  // a GPU one is copied to the device while the next one is read; on a CPU `values` is the state
  // itself. `values` stays until the next call has ended. Weights follow from the masters of all
  // ranks. InvalidArgument on all ranks, with nothing changed, for a step state that the controller
  // does not take (StepController::CheckState), or that differs between ranks. After an error of
  // `read`, which is an error on all ranks, the state is not defined.
  absl::Status LoadState(
      const kernels::StepState& state,
      absl::FunctionRef<absl::Status(int bucket, int array, ElementRange range, void* values)> read,
      int64_t chunk_bytes = int64_t{4} << 20);

  // For an optimizer beside this one (replicas/): one of the fp32 arrays of a trainable bucket's
  // elements that this rank updates, its slice, in stage 0 the whole bucket. Device memory, which
  // stays where it is. Array 0 is the master, the others, without those of errors, are as in
  // CopyState.
  // FailedPrecondition for a state that is not on the device, and for codes.
  absl::StatusOr<absl::Span<float>> StateArray(int bucket, int array) const;
  // The same elements of a frozen bucket's weights, as bytes of the bucket's type.
  absl::StatusOr<absl::Span<std::byte>> FrozenWeights(int bucket) const;
  // Arrays of the caller's, [array][bucket] of the sizes above, null of frozen buckets, belong to
  // the state from now on: CopyState and LoadState have them behind the moments, and
  // InitializeParameters sets them to zero. They outlive the optimizer. Once, before a Saver or a
  // reader is made; FailedPrecondition with offload, with moments that are codes, and with
  // local steps of ZeroOneAdam, between which ranks have masters of their own.
  absl::Status AttachState(std::vector<std::vector<float*>> arrays);
  // What is enqueued on step_stream() from now on may change these arrays: it comes after all
  // passes so far and after readers of the state, for whose ReturnState this waits as Step does.
  // FailedPrecondition in the middle of a step.
  absl::Status BeginStateChange();
  // Work on step_stream() has changed the masters, or the frozen weights, of these buckets, which
  // ascend: rounds the weights, and gathers them or leaves that to the next Acquire, as Step does.
  // A call of all ranks of the group.
  absl::Status MastersChanged(absl::Span<const int> buckets);
  // The same of all moments: what an exchange, or 1-bit LAMB, has made of them is made anew.
  absl::Status MomentsChanged();
  // The step state of another training of the same model and optimizer, with all that this
  // optimizer counts by it. A call of all ranks of the group between steps, with the same one;
  // waits. InvalidArgument as of StepController::LoadState, with nothing changed.
  absl::Status LoadStepState(const kernels::StepState& state);

  // Loss scale, gradient norm and step, read later (RequestState, TakeState), and changes of the
  // learning rate: enqueue them on step_stream(). Work on the compute stream from a step's first
  // Acquire to its last FinishBackward may read controller().state(), as the step before left it.
  optim::StepController& controller();
  device::Stream& step_stream();

  // What this rank has sent since Create, and what offload has moved between its tiers.
  const Traffic& traffic() const;
  const Movement& movement() const;
  // Where options say so, this rank's file; else null.
  const device::FileStore* file() const;

 private:
  friend class ZeroOptimizerTestPeer;

  ZeroOptimizer(Plan plan, const ZeroOptions& options);

  absl::Status ShowWeights();
  absl::Status ShowUpdated();
  absl::Status CheckLimits() const;
  absl::Status Allocate();
  void Free();
  absl::Status CheckUnit(const char* call, int unit) const;
  absl::Status CheckParameter(const char* call, int parameter) const;
  absl::Status WithUnit(const char* call, int unit, const absl::Status& status) const;
  std::string Place(const char* call, int chunk) const;
  bool IsFinished(int chunk) const;
  absl::Status CheckStep() const;
  absl::Status CheckBetweenSteps(const char* call) const;
  absl::Status PrepareToChangeState(const char* call);

  // The arrays of a state are loaded; loads its step state.
  absl::Status StateLoaded(const kernels::StepState& state);
  // Whether local steps may have moved this rank's weights.
  bool has_moves() const;

  const Plan plan_;
  const ZeroOptions options_;
  std::unique_ptr<internal::StepStreams> streams_;
  std::unique_ptr<internal::RankFile> file_;
  std::unique_ptr<internal::ParameterStore> parameters_;
  std::unique_ptr<internal::GradientStore> gradients_;
  std::unique_ptr<internal::ShardedUpdate> update_;
  // Those of exchanges or of codes, which belong to the two above. Null without them.
  internal::SavedErrors* errors_ = nullptr;
  std::unique_ptr<internal::StateTransfer> transfer_;
  std::unique_ptr<internal::StateLoan> loan_;
  // Recorded on the compute stream after the last backward pass of a step.
  std::unique_ptr<device::Event> backward_finished_;
  // Recorded on the communication stream after the step's decision.
  std::unique_ptr<device::Event> step_decided_;
  // A gradient of this micro-batch was asked for or reported.
  bool in_backward_ = false;
  // Errors as they are saved are those of the last step; or may be lent as they are.
  bool errors_shared_ = true, lends_old_errors_ = false;
  // Errors are zero since CancelStep, but not as they are saved, which a reader may have had then.
  bool errors_forgotten_ = false;
  // Of the step that begins next, or has begun; null: nobody.
  StepObserver* observer_ = nullptr;
  // Weights are those of a step that the file does not have.
  bool must_load_ = false;
};

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_ZERO_OPTIMIZER_H_
