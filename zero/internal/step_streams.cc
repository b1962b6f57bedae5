#include "brigade/zero/internal/step_streams.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "brigade/collectives/agree.h"
#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/status_macros.h"

namespace brigade::zero::internal {

StepStreams::StepStreams(const ZeroOptions& options, collectives::Communicator& communicator,
                         const OuterGroups& outer, device::Context& context,
                         device::Stream& compute)
    : options_(options),
      communicator_(communicator),
      outer_(outer),
      context_(context),
      compute_(compute) {}

absl::StatusOr<std::unique_ptr<StepStreams>> StepStreams::Create(
    const ZeroOptions& options, collectives::Communicator& communicator, const OuterGroups& outer,
    device::Context& context, device::Stream& compute) {
  std::unique_ptr<StepStreams> streams(
      new StepStreams(options, communicator, outer, context, compute));
  if (options.overlap_comm) {
    BRIGADE_ASSIGN_OR_RETURN(streams->own_, context.CreateStream("communication"));
    if (streams->has_shard_groups()) {
      BRIGADE_ASSIGN_OR_RETURN(streams->between_,
                               context.CreateStream("communication between groups"));
    }
  }
  return streams;
}

absl::Status StepStreams::CreateForOffload(int host_threads) {
  const OffloadOptions& offload = options_.offload;
  if (!offload.enabled()) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(down_, context_.CreateStream("to the host"));
  BRIGADE_ASSIGN_OR_RETURN(up_, context_.CreateStream("from the host"));
  if (context_.device().kind != device::DeviceKind::kCpu) {
    BRIGADE_ASSIGN_OR_RETURN(host_context_, context_.CreateHostContext(host_threads));
  }
  device::Context& host = host_context();
  BRIGADE_ASSIGN_OR_RETURN(host_, host.CreateStream("host"));
  if (offload.file_state()) {
    BRIGADE_ASSIGN_OR_RETURN(from_file_, host.CreateStream("from the file"));
    BRIGADE_ASSIGN_OR_RETURN(to_file_, host.CreateStream("to the file"));
    BRIGADE_ASSIGN_OR_RETURN(copies_from_file_, host.CreateStream("copies from the file"));
  }
  if (offload.file_parameters()) {
    BRIGADE_ASSIGN_OR_RETURN(weights_from_file_, host.CreateStream("weights from the file"));
  }
  return absl::OkStatus();
}

absl::Status StepStreams::Wait(WaitPoint point, device::Event& event, device::Stream& waiter) {
  if (omitted_ == point) return absl::OkStatus();
  return waiter.Wait(event);
}

std::vector<device::Stream*> StepStreams::Own() {
  std::vector<device::Stream*> streams;
  for (const auto* const each : {&own_, &between_, &down_, &from_file_, &host_, &to_file_, &up_,
                                 &weights_from_file_, &copies_from_file_}) {
    if (*each != nullptr) streams.push_back(each->get());
  }
  return streams;
}

void StepStreams::Reset() {
  compute_.Reset().IgnoreError();
  for (device::Stream* const stream : Own()) stream->Reset().IgnoreError();
}

absl::Status StepStreams::Poison(const device::Buffer& memory, device::Stream& stream) {
  if (context_.race_checker() == nullptr) return absl::OkStatus();
  return stream.FillBytes(memory.data(), 0xFF, memory.bytes());
}

absl::StatusOr<std::vector<collectives::Registration>> StepStreams::Register(
    const std::vector<const device::Buffer*>& memory, StepGroup role) {
  std::vector<collectives::Registration> registrations;
  for (const device::Buffer* const each : memory) {
    BRIGADE_ASSIGN_OR_RETURN(auto registration, group(role).Register(each->data(), each->bytes()));
    registrations.push_back(std::move(registration));
  }
  return registrations;
}

absl::Status StepStreams::Prepare(const std::vector<StepCollective>& collectives) {
  for (const StepCollective& each : collectives) {
    collectives::CollectiveSignature signature = each.signature;
    collectives::Communicator& in = group(each.group);
    BRIGADE_ASSIGN_OR_RETURN(const Route route, RouteOf(signature, in));
    signature.algorithm = route.algorithm;
    BRIGADE_RETURN_IF_ERROR(in.Reserve(signature));
  }
  return absl::OkStatus();
}

absl::Status StepStreams::Synchronize() {
  BRIGADE_RETURN_IF_ERROR(communicator_.Synchronize(comm()));
  for (collectives::Communicator* const each : communicators()) {
    BRIGADE_RETURN_IF_ERROR(each->status());
  }
  return absl::OkStatus();
}

std::vector<collectives::Communicator*> StepStreams::communicators() {
  std::vector<collectives::Communicator*> all;
  for (const StepGroup role : kStepGroups) {
    if (!absl::c_linear_search(all, &group(role))) all.push_back(&group(role));
  }
  return all;
}

absl::StatusOr<StepStreams::Route> StepStreams::RouteOf(
    const collectives::CollectiveSignature& signature, collectives::Communicator& group) {
  const collectives::Communicator* const of = &group;
  const auto key = std::make_tuple(of, signature.kind, signature.op, signature.reduction,
                                   signature.dtype, signature.count);
  const auto found = routes_.find(key);
  if (found != routes_.end()) return found->second;
  BRIGADE_ASSIGN_OR_RETURN(const auto resolved, group.Resolve(signature));
  return routes_[key] = {resolved.algorithm,
                         collectives::WireBytes(resolved, group.rank(), group.size())};
}

absl::StatusOr<collectives::Algorithm> StepStreams::Count(
    const collectives::CollectiveSignature& signature, int64_t& sent, StepGroup role) {
  BRIGADE_ASSIGN_OR_RETURN(const Route route, RouteOf(signature, group(role)));
  sent += route.sent_bytes;
  return route.algorithm;
}

absl::Status StepStreams::Sum(const collectives::CollectiveSignature& signature, const void* input,
                              void* output) {
  BRIGADE_ASSIGN_OR_RETURN(const auto algorithm, Count(signature, traffic.gradients));
  const collectives::ReduceOptions options = {signature.op, signature.reduction, algorithm};
  if (signature.kind == collectives::CollectiveKind::kAllReduce) {
    return communicator_.AllReduce(input, output, signature.count, signature.dtype, options,
                                   comm());
  }
  return communicator_.ReduceScatter(input, output, signature.count, signature.dtype, options,
                                     comm());
}

absl::Status StepStreams::AllGather(const void* input, void* output, int64_t count,
                                    precision::DType dtype, int64_t& sent, StepGroup role) {
  return GatherIn(group(role), input, output, count, dtype, sent);
}

absl::Status StepStreams::AgreeOnStatus(const absl::Status& mine) {
  // What one rank of a group knows then, all of them do.
  const absl::Status of_group = collectives::AgreeOnStatus(mine, communicator_);
  return has_shard_groups() ? collectives::AgreeOnStatus(of_group, groups()) : of_group;
}

absl::Status StepStreams::SumBetween(const collectives::CollectiveSignature& signature,
                                     void* slice) {
  BRIGADE_ASSIGN_OR_RETURN(const auto algorithm,
                           Count(signature, traffic.between, StepGroup::kBetween));
  return groups().AllReduce(slice, slice, signature.count, signature.dtype,
                            {signature.op, signature.reduction, algorithm}, between());
}

absl::Status StepStreams::GatherNear(const void* second, void* whole, int64_t count,
                                     precision::DType dtype) {
  return GatherIn(group(StepGroup::kNear), second, whole, count, dtype, traffic.near);
}

absl::Status StepStreams::SumTied(const collectives::CollectiveSignature& signature, void* data,
                                  int64_t& sent) {
  collectives::Communicator& both = group(StepGroup::kTied);
  BRIGADE_ASSIGN_OR_RETURN(const Route route, RouteOf(signature, both));
  sent += route.sent_bytes;
  return both.AllReduce(data, data, signature.count, signature.dtype,
                        {signature.op, signature.reduction, route.algorithm}, comm());
}

absl::Status StepStreams::AddUp(const float* input, float* output, int64_t count, int64_t& sent,
                                StepGroup role) {
  const collectives::CollectiveSignature sum = {.kind = collectives::CollectiveKind::kAllReduce,
                                                .algorithm = collectives::Algorithm::kDirect,
                                                .dtype = precision::DType::kFloat32,
                                                .count = count,
                                                .reduction = collectives::Reduction::kRoundedOnce};
  BRIGADE_RETURN_IF_ERROR(Count(sum, sent, role).status());
  return group(role).AllReduce(input, output, count, sum.dtype,
                               {sum.op, sum.reduction, sum.algorithm}, comm());
}

absl::Status StepStreams::GatherStatistics(const void* own, void* all, int64_t bytes) {
  return GatherIn(world(), own, all, bytes, precision::DType::kUint8, traffic.scalars);
}

absl::Status StepStreams::GatherIn(collectives::Communicator& group, const void* input,
                                   void* output, int64_t count, precision::DType dtype,
                                   int64_t& sent) {
  BRIGADE_ASSIGN_OR_RETURN(const Route route, RouteOf(AllGatherOf(options_, count, dtype), group));
  sent += route.sent_bytes;
  return group.AllGather(input, output, count, dtype, {route.algorithm}, comm());
}

absl::Status StepStreams::Broadcast(void* data, int64_t count, precision::DType dtype,
                                    int64_t& sent) {
  const collectives::CollectiveSignature signature = {
      .kind = collectives::CollectiveKind::kBroadcast, .dtype = dtype, .count = count};
  if (has_shard_groups() && rank() == 0) {
    BRIGADE_RETURN_IF_ERROR(Count(signature, sent, StepGroup::kBetween).status());
    BRIGADE_RETURN_IF_ERROR(groups().Broadcast(data, data, count, dtype, 0, comm()));
  }
  BRIGADE_RETURN_IF_ERROR(Count(signature, sent).status());
  return communicator_.Broadcast(data, data, count, dtype, 0, comm());
}

}  // namespace brigade::zero::internal
