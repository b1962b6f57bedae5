#include "brigade/collectives/engines/nccl/dispatcher.h"

#include <cstdint>
#include <utility>

#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

using precision::DType;

// cudaStreamPerThread. NCCL launches from threads of its own, where it means another stream.
bool IsStreamPerThread(NcclStream stream) { return reinterpret_cast<uintptr_t>(stream) == 2; }

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

// Whether NCCL's own reductions keep what the algorithm promises.
bool IsNative(const CallShape& shape) {
  const bool integers =
      shape.dtype == DType::kInt32 || shape.dtype == DType::kInt64 || shape.dtype == DType::kUint8;
  return shape.algorithm == Algorithm::kRing && (shape.op == kernels::ReduceOp::kSum || integers);
}

}  // namespace

absl::Status CallEnqueuer::Start() {
  BRIGADE_ASSIGN_OR_RETURN(barrier,
                           context_.Allocate(1, device::Purpose::kCommunication, "barrier"));
  barrier_ = std::move(barrier);
  return absl::OkStatus();
}

absl::Status CallEnqueuer::Run(const Call& call, device::Stream& stream, Fate& fate,
                               absl::FunctionRef<void()> announce) {
  Running running = {call, stream, fate, announce};
  return Choose(running);
}

absl::Status CallEnqueuer::Choose(Running& running) {
  const Call& call = running.call;
  const CallShape& shape = call.shape;
  const NcclType type = TypeOf(shape.dtype);
  const auto count = static_cast<size_t>(shape.count);
  switch (shape.kind) {
    case CallKind::kAllReduce:
      if (!IsNative(shape)) break;
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        return {api_.all_reduce(call.input, call.output, count, type, OpOf(shape.op), comm, on),
                "ncclAllReduce"};
      });
    case CallKind::kReduceScatter:
      if (!IsNative(shape)) break;
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        return {api_.reduce_scatter(call.input, call.output, count, type, OpOf(shape.op), comm, on),
                "ncclReduceScatter"};
      });
    case CallKind::kAllGather:
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        return {api_.all_gather(call.input, call.output, count, type, comm, on), "ncclAllGather"};
      });
    case CallKind::kBroadcast:
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        const void* const input = rank_ == shape.root ? call.input : call.output;
        return {api_.broadcast(input, call.output, count, type, shape.root, comm, on),
                "ncclBroadcast"};
      });
    case CallKind::kBarrier:
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        return {api_.all_reduce(barrier_.data(), barrier_.data(), 1, NcclType::kUint8, NcclOp::kSum,
                                comm, on),
                "ncclAllReduce"};
      });
    case CallKind::kSend:
      return Whole(running, [&](NcclComm comm, NcclStream on) -> NcclOutcome {
        if (rank_ == shape.root) {
          return {api_.send(call.input, count, type, call.peer, comm, on), "ncclSend"};
        }
        return {api_.receive(call.output, count, type, call.peer, comm, on), "ncclRecv"};
      });
    case CallKind::kAllToAll: {
      const int64_t bytes = shape.count * precision::SizeOf(shape.dtype);
      const auto part = [&](const void* array, int peer) {
        return const_cast<char*>(static_cast<const char*>(array)) + peer * bytes;
      };
      transfers_.clear();
      for (int peer = 0; peer < size_; ++peer) {
        transfers_.push_back({true, part(call.input, peer), shape.count, peer});
        transfers_.push_back({false, part(call.output, peer), shape.count, peer});
      }
      return Group(running, transfers_);
    }
  }
  return carrier_.Run(call, running.stream, [&](absl::Span<const Transfer> transfers) {
    return Group(running, transfers);
  });
}

absl::Status CallEnqueuer::Whole(Running& running, NcclCall nccl) {
  const Call& call = running.call;
  const int64_t bytes = precision::SizeOf(call.shape.dtype);
  const int64_t read = InputElements(call.shape, rank_, size_) * bytes;
  const int64_t written = OutputElements(call.shape, rank_, size_) * bytes;
  return Enqueue(running,
                 {Name(call.shape.kind),
                  {device::Reads(call.input, read), device::Writes(call.output, written)}},
                 nccl);
}

absl::Status CallEnqueuer::Group(Running& running, absl::Span<const Transfer> transfers) {
  const CallShape& shape = running.call.shape;
  const NcclType type = TypeOf(shape.dtype);
  accesses_.clear();
  for (const Transfer& transfer : transfers) {
    accesses_.push_back(
        {transfer.data, transfer.count * precision::SizeOf(shape.dtype), !transfer.sends});
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
  return Enqueue(running, {Name(shape.kind), accesses_}, nccl);
}

absl::Status CallEnqueuer::Enqueue(Running& running, const device::Operation& operation,
                                   NcclCall nccl) {
  const auto launch = [&](void* raw) -> absl::Status {
    const auto on = static_cast<NcclStream>(raw);
    if (IsStreamPerThread(on)) {
      running.fate = Fate::kRefused;
      return absl::OkStatus();
    }
    if (api_.is_capturing(on)) {
      running.fate = Fate::kCaptured;
    } else if (!std::exchange(running.announced, true)) {
      running.announce();
    }
    return comm_.Do([&](NcclComm comm) { return nccl(comm, on); });
  };
  // A stand-in takes the stream itself, and says what it reads and writes.
  return api_.on_host ? launch(&running.stream) : running.stream.Launch(operation, launch);
}

}  // namespace brigade::collectives
