#include "brigade/zero/internal/host_lane.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/context.h"
#include "brigade/device/operation.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {

absl::StatusOr<std::unique_ptr<HostLane>> HostLane::Create(const Plan& plan,
                                                           const ZeroOptions& options,
                                                           RankFile* file, StepStreams& streams) {
  std::unique_ptr<HostLane> lane(new HostLane(plan, options, file, streams));
  device::Context& context = streams.context();
  const std::vector<char> offloaded = OffloadedBuckets(plan, options);
  for (size_t b = 0; b < offloaded.size(); ++b) {
    if (!offloaded[b]) continue;
    const Bucket& bucket = plan.buckets()[b];
    const int64_t slice = plan.slice(bucket);
    BucketState& state = lane->states_[b];
    const std::string name = absl::StrCat("bucket ", b, " on the host");
    BRIGADE_ASSIGN_OR_RETURN(
        state.weights,
        context.AllocateHost(HostWeightBytes(plan, options, bucket), device::Purpose::kParameters,
                             absl::StrCat("weights of ", name)));
    BRIGADE_RETURN_IF_ERROR(
        streams.comm().FillBytes(state.weights.data(), 0, state.weights.bytes()));
    BRIGADE_ASSIGN_OR_RETURN(state.reduced, context.CreateEvent(absl::StrCat(name, " reduced")));
    device::Context& deliverer =
        options.offload.parameters == device::Tier::kDevice ? context : streams.host_context();
    BRIGADE_ASSIGN_OR_RETURN(state.done, deliverer.CreateEvent(absl::StrCat(name, " done")));
    for (int turn = 0; turn < lane->turns(); ++turn) {
      BRIGADE_ASSIGN_OR_RETURN(state.turns[turn].updated,
                               streams.host_context().CreateEvent(absl::StrCat(name, " updated")));
      BRIGADE_ASSIGN_OR_RETURN(
          state.turns[turn].gradient,
          context.AllocateHost(slice * precision::SizeOf(FinalGradientType(options, bucket)),
                               device::Purpose::kGradients, absl::StrCat("gradients of ", name)));
    }
  }
  for (int turn = 0; turn < lane->turns(); ++turn) {
    Decision& decision = lane->decisions_[turn];
    BRIGADE_ASSIGN_OR_RETURN(decision.copy,
                             context.AllocateHost(DecisionBytes(options), device::Purpose::kScratch,
                                                  "decision on the host"));
    BRIGADE_ASSIGN_OR_RETURN(decision.read, streams.host_context().CreateEvent("host at rest"));
  }
  BRIGADE_ASSIGN_OR_RETURN(lane->decided_, context.CreateEvent("decided"));
  BRIGADE_ASSIGN_OR_RETURN(lane->copied_, context.CreateEvent("gradients on the host"));
  BRIGADE_RETURN_IF_ERROR(lane->Reset());
  return lane;
}

absl::Status HostLane::Reset() {
  device::Stream& host = streams_.host();
  for (int turn = 0; turn < turns(); ++turn) {
    for (BucketState& each : states_) {
      if (each.done != nullptr) BRIGADE_RETURN_IF_ERROR(host.Record(*each.turns[turn].updated));
    }
    BRIGADE_RETURN_IF_ERROR(last().Record(*decisions_[turn].read));
  }
  for (BucketState& each : states_) {
    if (each.done != nullptr) BRIGADE_RETURN_IF_ERROR(deliverer().Record(*each.done));
  }
  return absl::OkStatus();
}

absl::Status HostLane::TakeGradient(int bucket, const void* gradient, device::Event* free) {
  BucketState& at = state(bucket);
  BucketState::Turn& turn = at.turns[turn_];
  device::Stream& down = streams_.down();
  BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*at.reduced));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kGradientReduced, *at.reduced, down));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kHostGradientFree, *turn.updated, down));
  BRIGADE_RETURN_IF_ERROR(down.Copy(turn.gradient.data(), gradient, turn.gradient.bytes()));
  streams_.movement.to_host += turn.gradient.bytes();
  return free == nullptr ? absl::OkStatus() : down.Record(*free);
}

absl::StatusOr<optim::StepDecision> HostLane::CopyDecision(const optim::StepDecision& decision) {
  device::Stream& down = streams_.down();
  const Decision& to = decisions_[turn_];
  BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*decided_));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kGradientReduced, *decided_, down));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kHostGradientFree, *to.read, down));
  char* const copy = to.copy.as<char>().data();
  constexpr int64_t kState = sizeof(kernels::StepState);
  BRIGADE_RETURN_IF_ERROR(down.Copy(copy, decision.state, kState));
  BRIGADE_RETURN_IF_ERROR(down.Copy(copy + kState, decision.group_steps, to.copy.bytes() - kState));
  streams_.movement.to_host += to.copy.bytes();
  BRIGADE_RETURN_IF_ERROR(down.Record(*copied_));
  return optim::StepDecision{reinterpret_cast<const kernels::StepState*>(copy),
                             reinterpret_cast<const kernels::GroupStep*>(copy + kState)};
}

absl::Status HostLane::Update(const optim::StepDecision& decision) {
  device::Stream& host = streams_.host();
  BRIGADE_ASSIGN_OR_RETURN(const optim::StepDecision here, CopyDecision(decision));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kGradientOnHost, *copied_, host));
  const OffloadOptions& offload = options_.offload;
  const bool delays = offload.delay_update && steps_ >= offload.delay_warm_up;
  if (delays) {
    // What is delivered was updated long ago: nothing else keeps it from overtaking the passes.
    BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kBackwardFinished, *decided_, streams_.up()));
  }
  if (file_ != nullptr) BRIGADE_RETURN_IF_ERROR(file_->BeginStep());
  for (size_t b = states_.size(); b-- > 0;) {
    BucketState& at = states_[b];
    if (at.done == nullptr) continue;
    if (delays) BRIGADE_RETURN_IF_ERROR(Deliver(at, 1 - turn_));
    BRIGADE_RETURN_IF_ERROR(UpdateBucket(b, here));
    if (!delays) BRIGADE_RETURN_IF_ERROR(Deliver(at, turn_));
  }
  if (file_ != nullptr) BRIGADE_RETURN_IF_ERROR(file_->Commit(here.state));
  BRIGADE_RETURN_IF_ERROR(last().Record(*decisions_[turn_].read));
  if (offload.delay_update) turn_ = 1 - turn_;
  ++steps_;
  return absl::OkStatus();
}

absl::Status HostLane::UpdateBucket(size_t bucket, const optim::StepDecision& decision) {
  BucketState& at = states_[bucket];
  device::Stream& host = streams_.host();
  if (at.work.target != nullptr) {
    BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kHostWeightsFree, *at.done, host));
  }
  const int64_t weights = file_ == nullptr ? -1 : file_->layout().weights_of[bucket];
  if (weights >= 0) BRIGADE_RETURN_IF_ERROR(file_->AwaitMemory(weights));
  for (const Piece& piece : at.work.pieces) {
    if (piece.chunk >= 0) {
      BRIGADE_RETURN_IF_ERROR(UpdateChunk(piece, decision));
    } else {
      BRIGADE_RETURN_IF_ERROR(piece.updates[static_cast<size_t>(turn_)].Enqueue(decision, host));
    }
  }
  if (weights >= 0) BRIGADE_RETURN_IF_ERROR(file_->Write(weights, decision.state));
  return host.Record(*at.turns[turn_].updated);
}

absl::Status HostLane::UpdateChunk(const Piece& piece, const optim::StepDecision& decision) {
  device::Stream& host = streams_.host();
  BRIGADE_RETURN_IF_ERROR(file_->ReadState(piece.chunk, decision.state));
  BRIGADE_RETURN_IF_ERROR(piece.updates[static_cast<size_t>(turn_)].Enqueue(decision, host));
  if (piece.master != nullptr) {
    const int32_t* const skip = &decision.state->skip;
    BRIGADE_RETURN_IF_ERROR(host.Enqueue(
        {"copy of the master",
         {device::Reads(piece.master, piece.bytes), device::Writes(piece.weights, piece.bytes),
          device::Reads(skip, sizeof(*skip))}},
        [from = piece.master, to = piece.weights, bytes = piece.bytes, skip](device::ThreadPool&) {
          if (*skip == 0) std::memcpy(to, from, static_cast<size_t>(bytes));
          return absl::OkStatus();
        }));
  }
  return file_->Write(piece.chunk, decision.state);
}

absl::Status HostLane::Deliver(BucketState& at, int turn) {
  const Work& work = at.work;
  if (options_.offload.file_parameters()) return absl::OkStatus();
  if (work.target == nullptr) return streams_.host().Record(*at.done);
  if (!options_.offload.host_parameters()) {
    BRIGADE_RETURN_IF_ERROR(
        streams_.Wait(WaitPoint::kWeightsUpdated, *at.turns[turn].updated, deliverer()));
    streams_.movement.from_host += work.bytes;
  }
  BRIGADE_RETURN_IF_ERROR(deliverer().Copy(work.target, work.source, work.bytes));
  return deliverer().Record(*at.done);
}

absl::Status HostLane::Await() {
  device::Stream& comm = streams_.comm();
  // The turn before this one's comes last.
  const int last = options_.offload.delay_update ? 1 - turn_ : turn_;
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kHostAtRest, *decisions_[last].read, comm));
  for (const BucketState& each : states_) {
    if (each.done == nullptr) continue;
    BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kHostAtRest, *each.done, comm));
  }
  return absl::OkStatus();
}

}  // namespace brigade::zero::internal
