#include "brigade/zero/internal/step_streams.h"

#include <utility>

#include "brigade/collectives/algorithms/wire_elements.h"
#include "brigade/device/status_macros.h"

namespace brigade::zero::internal {

StepStreams::StepStreams(const ZeroOptions& options, collectives::Communicator& communicator,
                         device::Context& context, device::Stream& compute)
    : options_(options), communicator_(communicator), context_(context), compute_(compute) {}

absl::StatusOr<std::unique_ptr<StepStreams>> StepStreams::Create(
    const ZeroOptions& options, collectives::Communicator& communicator, device::Context& context,
    device::Stream& compute) {
  std::unique_ptr<StepStreams> streams(new StepStreams(options, communicator, context, compute));
  if (options.overlap_comm) {
    BRIGADE_ASSIGN_OR_RETURN(streams->own_, context.CreateStream("communication"));
  }
  return streams;
}

absl::Status StepStreams::Wait(WaitPoint point, device::Event& event, device::Stream& waiter) {
  if (omitted_ == point) return absl::OkStatus();
  return waiter.Wait(event);
}

absl::Status StepStreams::Poison(const device::Buffer& memory, device::Stream& stream) {
  if (context_.race_checker() == nullptr) return absl::OkStatus();
  return stream.FillBytes(memory.data(), 0xFF, memory.bytes());
}

absl::StatusOr<std::vector<collectives::Registration>> StepStreams::Register(
    const std::vector<const device::Buffer*>& memory) {
  std::vector<collectives::Registration> registrations;
  for (const device::Buffer* const each : memory) {
    BRIGADE_ASSIGN_OR_RETURN(auto registration,
                             communicator_.Register(each->data(), each->bytes()));
    registrations.push_back(std::move(registration));
  }
  return registrations;
}

absl::Status StepStreams::Prepare(const std::vector<StepCollective>& collectives) {
  for (const StepCollective& each : collectives) {
    BRIGADE_RETURN_IF_ERROR(communicator_.Reserve(each.signature));
    BRIGADE_RETURN_IF_ERROR(SentBytes(each.signature).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> StepStreams::SentBytes(const collectives::CollectiveSignature& signature) {
  const auto key =
      std::make_tuple(signature.kind, signature.algorithm, signature.dtype, signature.count);
  const auto found = sent_bytes_.find(key);
  if (found != sent_bytes_.end()) return found->second;
  BRIGADE_ASSIGN_OR_RETURN(const auto resolved, communicator_.Resolve(signature));
  return sent_bytes_[key] = collectives::WireBytes(resolved, rank(), ranks());
}

absl::Status StepStreams::Count(const collectives::CollectiveSignature& signature, int64_t& sent) {
  BRIGADE_ASSIGN_OR_RETURN(const int64_t bytes, SentBytes(signature));
  sent += bytes;
  return absl::OkStatus();
}

absl::Status StepStreams::Sum(const collectives::CollectiveSignature& signature, const void* input,
                              void* output) {
  BRIGADE_RETURN_IF_ERROR(Count(signature, traffic.gradients));
  const collectives::ReduceOptions options = {signature.op, signature.reduction,
                                              signature.algorithm};
  if (signature.kind == collectives::CollectiveKind::kAllReduce) {
    return communicator_.AllReduce(input, output, signature.count, signature.dtype, options,
                                   comm());
  }
  return communicator_.ReduceScatter(input, output, signature.count, signature.dtype, options,
                                     comm());
}

absl::Status StepStreams::AllGather(const void* input, void* output, int64_t count,
                                    precision::DType dtype, int64_t& sent) {
  const collectives::CollectiveSignature signature = AllGatherOf(options_, count, dtype);
  BRIGADE_RETURN_IF_ERROR(Count(signature, sent));
  return communicator_.AllGather(input, output, count, dtype, {signature.algorithm}, comm());
}

absl::Status StepStreams::Broadcast(void* data, int64_t count, precision::DType dtype,
                                    int64_t& sent) {
  BRIGADE_RETURN_IF_ERROR(Count(
      {.kind = collectives::CollectiveKind::kBroadcast, .dtype = dtype, .count = count}, sent));
  return communicator_.Broadcast(data, data, count, dtype, 0, comm());
}

absl::StatusOr<std::vector<std::string>> StepStreams::AllGatherHost(const std::string& bytes) {
  const size_t size = bytes.size();
  const auto count = static_cast<int64_t>(size);
  std::string all(size * static_cast<size_t>(ranks()), '\0');
  BRIGADE_ASSIGN_OR_RETURN(
      auto buffer,
      context_.Allocate(count * ranks(), device::Purpose::kScratch, "host values of all ranks"));
  char* const data = static_cast<char*>(buffer.data());
  char* const mine = data + rank() * count;
  BRIGADE_RETURN_IF_ERROR(comm().Copy(mine, bytes.data(), count));
  BRIGADE_RETURN_IF_ERROR(Count({.kind = collectives::CollectiveKind::kAllGather,
                                 .algorithm = collectives::Algorithm::kAuto,
                                 .count = count},
                                traffic.setup));
  BRIGADE_RETURN_IF_ERROR(
      communicator_.AllGather(mine, data, count, precision::DType::kUint8, {}, comm()));
  BRIGADE_RETURN_IF_ERROR(comm().Copy(all.data(), data, count * ranks()));
  BRIGADE_RETURN_IF_ERROR(comm().Synchronize());
  std::vector<std::string> shared;
  for (size_t at = 0; at < all.size(); at += size) shared.push_back(all.substr(at, size));
  return shared;
}

}  // namespace brigade::zero::internal
