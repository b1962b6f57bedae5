#ifndef BRIGADE_REPLICAS_OUTER_OPTIMIZER_H_
#define BRIGADE_REPLICAS_OUTER_OPTIMIZER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/compressed/compressed_reduction.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"
#include "brigade/replicas/options.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::replicas {

// One rank's share of what brings replicas together: whole copies of a training, each a
// ZeroOptimizer over ranks of its own, that update locally. Behind each ZeroOptimizer::Step comes
// Step; after every OuterOptions::period of them the replicas have a round (options.h has the
// formulas), each rank with those that have its place in the other replicas.
//
//   auto outer = OuterOptimizer::Create(*zero, options, inside, context);
//   zero->InitializeParameters(...)          or LoadState, then Resume
//   outer->Join(*between);
//   for each step: ... zero->Step(); outer->Step();
//
// Precision    All in fp32, over the fp32 masters; the wire may have 16 bits. The bits are those of
//              tests/spec/replicas.h, and all replicas have the same w0 and v.
// Memory       All of it at Create, but for the communicator's workspace, which Join makes:
//              MemoryOf (round_plan.h).
// Traffic      TrafficOfRound (round_plan.h). A step without a round sends nothing.
// Stream       d is made and used on ZeroOptimizer::step_stream(); its sum runs on a stream of its
//              own, beside the steps of a delay.
// Host waits   The step in which a sum is used waits for it, and the ranks agree on the host that
//              all have it: only so does a round that fails leave the same weights everywhere.
//              Other steps enqueue. (docs/decisions/0180)
// Not finite   A round whose mean has an infinity or NaN changes neither w0 nor v; all replicas go
//              back to w0.
// Determinism  Same bits on every engine and device, and in every stage, but on a wire of float16,
//              whose scale is that of a rank's part of a bucket.
// Errors       Of `between`, whoever dies there: Step returns it on all ranks of the replicas that
//              are left, w0 and v are those of the round before, and the communicators inside a
//              replica go on. Those that are left make a communicator without the dead
//              (Communicator::Shrink), destroy this one, and Join; until then Step is
//              FailedPrecondition. An error inside a replica ends the replica: the rank that gets
//              it from Step, or elsewhere, ends `between` (Communicator::Abort), so that the others
//              do not wait for it.
// Threads      One at a time, and not beside the ZeroOptimizer's calls.
class OuterOptimizer {
 public:
  // A call of all ranks of a replica; waits. `inside` are all ranks that hold this replica: the
  // ZeroOptimizer's communicator, or with several groups their world. All outlive the optimizer,
  // and it outlives the ZeroOptimizer's steps: its arrays become part of that state (AttachState),
  // so that checkpoints have w0 and v. InvalidArgument for options that are wrong or differ inside
  // the replica, FailedPrecondition for a state that is not on the device, or masters that ranks
  // have of their own between meetings of ZeroOneAdam, ResourceExhausted; on all ranks of the
  // replica.
  static absl::StatusOr<std::unique_ptr<OuterOptimizer>> Create(zero::ZeroOptimizer& zero,
                                                                const OuterOptions& options,
                                                                collectives::Communicator& inside,
                                                                device::Context& context);

  // Before Join, behind a LoadState that has brought w0 and v: the training has made so many steps.
  // A sum that was on its way when the state was saved is left out: its part has its next round one
  // period later.
  void Resume(int64_t steps);

  // The replicas of `between` train together from now on. A call of all its ranks, between steps;
  // waits. It has this rank and those with its place in the other replicas, in the same order on
  // all ranks of a replica; it outlives the optimizer, or the next Join; but one that has failed is
  // destroyed before either.
  //
  // All that begin: they get the first one's weights as w0, and v is 0. With some that are
  // in training: w0, v and the number of steps are those of the first one with the latest round;
  // new ones, those whose last round or Join has failed, and those that have missed a round go on
  // from w0. New ones get that one's moments and step state too; those and resumed ones its frozen
  // weights. The others keep their weights and moments. A sum on its way is dropped.
  //
  // InvalidArgument on all ranks if replicas differ in model, options or place, or where they have
  // resumed at different steps. After an error of `between`, or inside the replica, w0 and v are
  // whole only in the replica that gave them: the others get them again in the next Join, which is
  // FailedPrecondition on all ranks if no replica of a training has them whole, until a checkpoint
  // is loaded (LoadState, Resume). The communicator inside goes on.
  absl::Status Join(collectives::Communicator& between);

  // Behind each ZeroOptimizer::Step, skipped ones included. FailedPrecondition without a Join, and
  // where a sum is used in the middle of a ZeroOptimizer's step.
  absl::Status Step();

  // So many calls of Step, those before Resume and of others before Join included; and behind which
  // of them the last round was that has changed w0 here; 0: none.
  int64_t steps() const { return steps_; }
  int64_t last_round() const { return last_round_; }
  // How many rounds this rank has finished since Create, and how many of them were not finite.
  int64_t rounds() const { return rounds_; }
  int64_t rounds_not_finite() const { return not_finite_; }
  const OuterOptions& options() const { return options_; }

  // Payload bytes that this rank has sent in rounds, and in Joins.
  int64_t sent_bytes() const { return sent_; }
  int64_t setup_bytes() const { return setup_; }

 private:
  friend class OuterOptimizerTestPeer;

  enum Array : uint8_t { kWeights, kMomentum };
  // A round: of the options, or a mean (OuterOptions::start_step).
  struct Round {
    double lr, momentum, mix;
    bool has_momentum() const { return momentum > 0; }
  };
  // Where the exchange's stream waits for the step's, in a round and in Join; and where the host
  // and the step's stream wait for the exchange's.
  enum class WaitPoint : uint8_t { kDeltasMade, kStateMade, kDeltasSummed, kStateCame };
  // What replicas tell each other in Join.
  struct Standing;

  OuterOptimizer(zero::ZeroOptimizer& zero, const OuterOptions& options,
                 collectives::Communicator& inside, device::Context& context);

  absl::Status Allocate();
  absl::Span<float> Part(Array array, int bucket) const;
  // Of a bucket of the fragment in flight, or of any as scratch memory.
  float* Delta(int fragment, size_t index) const;
  device::Stream& stream() { return zero_.step_stream(); }

  absl::Status AwaitMade(WaitPoint point);
  absl::Status AwaitExchange(WaitPoint point);
  // OK if it is on all ranks of all replicas.
  absl::Status AgreeWithAll(const absl::Status& mine, collectives::Communicator& between);
  absl::Status CheckReplicas(collectives::Communicator& between);
  absl::Status Prepare(collectives::Communicator& between);
  static absl::StatusOr<int> RootOf(const std::vector<Standing>& all);
  absl::Status Share(const Standing& mine, const std::vector<Standing>& all, int root);
  absl::Status ShareFrozen(bool takes, int root);
  absl::Status ShareStepState(const Standing& mine, int root);
  absl::Status Broadcast(void* data, int64_t count, precision::DType dtype, int root);
  absl::Status TakeShared(const Standing& mine, const Standing& latest);
  std::vector<int> FrozenBuckets() const;

  // Enqueues the deltas of a fragment and their sum.
  absl::Status Send(int fragment);
  // Waits for the sum, agrees with all ranks, and enqueues what follows from it.
  absl::Status Use(int fragment, const Round& round);
  // Whether all ranks have the sum, and it is finite.
  absl::StatusOr<bool> Agree();
  absl::Status Update(int fragment, const Round& round);
  absl::Status Mix(int fragment, double mix);

  zero::ZeroOptimizer& zero_;
  const OuterOptions options_;
  collectives::Communicator& inside_;
  device::Context& context_;
  std::vector<std::vector<int>> fragments_;
  // [fragment], where each begins in its array; and [bucket], -1 of frozen ones.
  std::vector<int64_t> begin_;
  device::Buffer weights_, momentum_, deltas_, workspace_, stats_, host_stats_;
  std::unique_ptr<device::Stream> exchange_;
  // On the step's stream: what the exchange's sends is there; on the exchange's: the others' is.
  std::unique_ptr<device::Event> made_, came_;
  collectives::Communicator* between_ = nullptr;
  std::unique_ptr<collectives::CompressedReduction> wire_;

  int64_t steps_ = 0;
  int64_t last_round_ = 0;
  enum class Origin : uint8_t { kInTraining, kNew, kResumed };
  Origin origin_ = Origin::kNew;
  // No Join has left w0 and v, or of a new one its own state, in parts.
  bool is_whole_ = true;
  // The last round has failed.
  bool failed_ = false;
  // -1: none.
  int in_flight_ = -1;
  int64_t use_at_ = 0;
  int64_t rounds_ = 0, not_finite_ = 0, sent_ = 0, setup_ = 0;
  // By bucket: what a round sends.
  std::vector<int64_t> sum_bytes_;
  // For a test that shows that the race checker reports a wait's absence.
  std::optional<WaitPoint> omitted_;
};

}  // namespace brigade::replicas

#endif  // BRIGADE_REPLICAS_OUTER_OPTIMIZER_H_
