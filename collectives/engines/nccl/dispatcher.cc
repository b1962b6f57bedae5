#include "brigade/collectives/engines/nccl/dispatcher.h"

#include <utility>

#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

using precision::DType;

NcclType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return NcclType::kFloat32;
    case DType::kFloat16:
      return NcclType::kFloat16;
    case DType::kBFloat16:
      return NcclType::kBfloat16;
    case DType::kFloat64:
      return NcclType::kFloat64;
    case DType::kInt32:
      return NcclType::kInt32;
    case DType::kInt64:
      return NcclType::kInt64;
    default:
      return NcclType::kUint8;
  }
}

NcclOp OpOf(kernels::ReduceOp op) {
  if (op == kernels::ReduceOp::kMin) return NcclOp::kMin;
  return op == kernels::ReduceOp::kMax ? NcclOp::kMax : NcclOp::kSum;
}

bool IsError(const NcclOutcome& outcome) {
  return outcome.result != NcclResult::kSuccess && outcome.result != NcclResult::kInProgress;
}

}  // namespace

absl::Status NcclDispatcher::Start() {
  BRIGADE_ASSIGN_OR_RETURN(barrier_,
                           context_.Allocate(1, device::Purpose::kCommunication, "barrier"));
  return absl::OkStatus();
}

bool NcclDispatcher::HasNative(const CollectiveSignature& signature) {
  const bool integers = signature.dtype == DType::kInt32 || signature.dtype == DType::kInt64 ||
                        signature.dtype == DType::kUint8;
  return HasAlgorithms(signature.kind) && (signature.op == kernels::ReduceOp::kSum || integers);
}

absl::Status NcclDispatcher::Reserve(const CollectiveSignature& signature) {
  return IsNcclsOwn(signature) ? absl::OkStatus() : executor_.Reserve(signature);
}

absl::Status NcclDispatcher::Run(const Collective& collective, device::Stream& stream,
                                 bool& is_captured, absl::FunctionRef<void()> announce) {
  Running running = {collective, stream, is_captured, announce};
  return Choose(running);
}

absl::Status NcclDispatcher::Choose(Running& running) {
  const Collective& collective = running.collective;
  const CollectiveSignature& signature = collective.signature;
  const NcclType type = TypeOf(signature.dtype);
  const auto count = static_cast<size_t>(signature.count);
  switch (signature.kind) {
    case CollectiveKind::kAllReduce:
      if (signature.algorithm != Algorithm::kNative) break;
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        return {api_.all_reduce(collective.input, collective.output, count, type,
                                OpOf(signature.op), comm, on),
                "ncclAllReduce"};
      });
    case CollectiveKind::kReduceScatter:
      if (signature.algorithm != Algorithm::kNative) break;
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        return {api_.reduce_scatter(collective.input, collective.output, count, type,
                                    OpOf(signature.op), comm, on),
                "ncclReduceScatter"};
      });
    case CollectiveKind::kAllGather:
      if (signature.algorithm != Algorithm::kNative) break;
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        return {api_.all_gather(collective.input, collective.output, count, type, comm, on),
                "ncclAllGather"};
      });
    case CollectiveKind::kBroadcast:
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        const void* const input = rank_ == signature.root ? collective.input : collective.output;
        return {api_.broadcast(input, collective.output, count, type, signature.root, comm, on),
                "ncclBroadcast"};
      });
    case CollectiveKind::kBarrier:
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        return {api_.all_reduce(barrier_.data(), barrier_.data(), 1, NcclType::kUint8, NcclOp::kSum,
                                comm, on),
                "ncclAllReduce"};
      });
    case CollectiveKind::kSend:
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        if (rank_ == signature.root) {
          return {api_.send(collective.input, count, type, collective.peer, comm, on), "ncclSend"};
        }
        return {api_.receive(collective.output, count, type, collective.peer, comm, on),
                "ncclRecv"};
      });
    case CollectiveKind::kAllToAll: {
      const int64_t bytes = signature.count * precision::SizeOf(signature.dtype);
      const auto part = [&](const void* array, int peer) {
        return const_cast<char*>(static_cast<const char*>(array)) + peer * bytes;
      };
      transfers_.clear();
      for (int peer = 0; peer < size_; ++peer) {
        transfers_.push_back({true, part(collective.input, peer), signature.count, peer});
        transfers_.push_back({false, part(collective.output, peer), signature.count, peer});
      }
      return Group(running, transfers_);
    }
    case CollectiveKind::kShift:
      break;
  }
  return executor_.Run(collective, running.stream, [&](absl::Span<const Transfer> transfers) {
    return Group(running, transfers);
  });
}

absl::Status NcclDispatcher::Whole(Running& running, NcclCall nccl) {
  const Collective& collective = running.collective;
  const int64_t bytes = precision::SizeOf(collective.signature.dtype);
  const int64_t read = InputElements(collective.signature, rank_, size_) * bytes;
  const int64_t written = OutputElements(collective.signature, rank_, size_) * bytes;
  return Enqueue(
      running,
      {Name(collective.signature.kind),
       {device::Reads(collective.input, read), device::Writes(collective.output, written)}},
      nccl);
}

absl::Status NcclDispatcher::Group(Running& running, absl::Span<const Transfer> transfers) {
  const CollectiveSignature& signature = running.collective.signature;
  const DType dtype = PartialType(signature);
  const NcclType type = TypeOf(dtype);
  accesses_.clear();
  for (const Transfer& transfer : transfers) {
    accesses_.push_back(
        {transfer.data, transfer.count * precision::SizeOf(dtype), !transfer.sends});
  }
  const auto nccl = [&](NcclComm comm, NcclStream on) -> NcclOutcome {
    const NcclOutcome start = {api_.group_start(), "ncclGroupStart"};
    if (IsError(start)) return start;
    NcclOutcome added = start;
    for (size_t i = 0; i < transfers.size() && !IsError(added); ++i) {
      const Transfer& it = transfers[i];
      const auto count = static_cast<size_t>(it.count);
      if (it.sends) {
        added = {api_.send(it.data, count, type, it.peer, comm, on), "ncclSend"};
      } else {
        added = {api_.receive(it.data, count, type, it.peer, comm, on), "ncclRecv"};
      }
    }
    const NcclOutcome end = {api_.group_end(), "ncclGroupEnd"};  // also after an error
    return IsError(added) ? added : end;
  };
  return Enqueue(running, {Name(signature.kind), accesses_}, nccl);
}

absl::Status NcclDispatcher::Enqueue(Running& running, const device::Operation& operation,
                                     NcclCall nccl) {
  return api_.launch(running.stream, operation, [&](NcclStream on) -> absl::Status {
    if (api_.is_capturing(on)) {
      running.is_captured = true;
    } else if (!std::exchange(running.announced, true)) {
      running.announce();
    }
    return comm_.Do([&](NcclComm comm) { return nccl(comm, on); });
  });
}

}  // namespace brigade::collectives
