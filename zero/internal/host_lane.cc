#include "brigade/zero/internal/host_lane.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {

absl::StatusOr<std::unique_ptr<HostLane>> HostLane::Create(const Plan& plan,
                                                           const ZeroOptions& options,
                                                           StepStreams& streams) {
  std::unique_ptr<HostLane> lane(new HostLane(plan, options, streams));
  device::Context& context = streams.context();
  const std::vector<char> offloaded = OffloadedBuckets(plan, options);
  for (size_t b = 0; b < offloaded.size(); ++b) {
    if (!offloaded[b]) continue;
    const Bucket& bucket = plan.buckets()[b];
    const int64_t slice = plan.slice(bucket);
    BucketState& state = lane->states_[b];
    const std::string name = absl::StrCat("bucket ", b, " on the host");
    BRIGADE_ASSIGN_OR_RETURN(
        state.gradient,
        context.AllocateHost(slice * precision::SizeOf(FinalGradientType(options, bucket)),
                             device::Purpose::kGradients, absl::StrCat("gradients of ", name)));
    BRIGADE_ASSIGN_OR_RETURN(
        state.weights,
        context.AllocateHost(HostWeightBytes(plan, options, bucket), device::Purpose::kParameters,
                             absl::StrCat("weights of ", name)));
    BRIGADE_RETURN_IF_ERROR(
        streams.comm().FillBytes(state.weights.data(), 0, state.weights.bytes()));
    for (const auto& [event, what] : {std::pair(&state.reduced, "reduced"),
                                      {&state.updated, "updated"},
                                      {&state.done, "done"}}) {
      BRIGADE_ASSIGN_OR_RETURN(*event, context.CreateEvent(absl::StrCat(name, " ", what)));
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(lane->decision_,
                           context.AllocateHost(DecisionBytes(options), device::Purpose::kScratch,
                                                "decision on the host"));
  BRIGADE_ASSIGN_OR_RETURN(lane->decided_, context.CreateEvent("decided"));
  BRIGADE_ASSIGN_OR_RETURN(lane->copied_, context.CreateEvent("gradients on the host"));
  BRIGADE_ASSIGN_OR_RETURN(lane->at_rest_, context.CreateEvent("host at rest"));
  BRIGADE_RETURN_IF_ERROR(lane->Reset());
  return lane;
}

absl::Status HostLane::Reset() {
  for (BucketState& each : states_) {
    if (each.done == nullptr) continue;
    BRIGADE_RETURN_IF_ERROR(streams_.host().Record(*each.updated));
    BRIGADE_RETURN_IF_ERROR(streams_.up().Record(*each.done));
  }
  return streams_.host().Record(*at_rest_);
}

absl::Status HostLane::TakeGradient(int bucket, const void* gradient, device::Event* free) {
  BucketState& at = state(bucket);
  device::Stream& down = streams_.down();
  BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*at.reduced));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kGradientReduced, *at.reduced, down));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kHostGradientFree, *at.updated, down));
  BRIGADE_RETURN_IF_ERROR(down.Copy(at.gradient.data(), gradient, at.gradient.bytes()));
  streams_.movement.to_host += at.gradient.bytes();
  return free == nullptr ? absl::OkStatus() : down.Record(*free);
}

absl::Status HostLane::Update(const optim::StepDecision& decision) {
  device::Stream &comm = streams_.comm(), &down = streams_.down(), &host = streams_.host();
  BRIGADE_RETURN_IF_ERROR(comm.Record(*decided_));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kGradientReduced, *decided_, down));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kHostGradientFree, *at_rest_, down));
  const absl::Span<char> copy = decision_.as<char>();
  const int64_t state_bytes = sizeof(kernels::StepState);
  BRIGADE_RETURN_IF_ERROR(down.Copy(copy.data(), decision.state, state_bytes));
  BRIGADE_RETURN_IF_ERROR(
      down.Copy(copy.data() + state_bytes, decision.group_steps, decision_.bytes() - state_bytes));
  streams_.movement.to_host += decision_.bytes();
  BRIGADE_RETURN_IF_ERROR(down.Record(*copied_));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kGradientOnHost, *copied_, host));
  const optim::StepDecision here = {
      reinterpret_cast<const kernels::StepState*>(copy.data()),
      reinterpret_cast<const kernels::GroupStep*>(copy.data() + state_bytes)};
  for (size_t b = states_.size(); b-- > 0;) {
    BucketState& at = states_[b];
    if (at.done == nullptr) continue;
    const Work& work = *at.work;
    const bool rises = work.target != nullptr;
    if (rises) {
      BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kHostWeightsFree, *at.done, host));
    }
    BRIGADE_RETURN_IF_ERROR(work.update.Enqueue(here, host));
    BRIGADE_RETURN_IF_ERROR(host.Record(*at.updated));
    if (!rises) {
      BRIGADE_RETURN_IF_ERROR(host.Record(*at.done));
      continue;
    }
    device::Stream& up = streams_.up();
    BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kWeightsUpdated, *at.updated, up));
    BRIGADE_RETURN_IF_ERROR(up.Copy(work.target, work.source, work.bytes));
    streams_.movement.from_host += work.bytes;
    BRIGADE_RETURN_IF_ERROR(up.Record(*at.done));
  }
  return host.Record(*at_rest_);
}

absl::Status HostLane::Await() {
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kHostAtRest, *at_rest_, streams_.comm()));
  for (const BucketState& each : states_) {
    if (each.done == nullptr) continue;
    BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kHostAtRest, *each.done, streams_.comm()));
  }
  return absl::OkStatus();
}

}  // namespace brigade::zero::internal
