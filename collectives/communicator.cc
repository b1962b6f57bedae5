#include "brigade/collectives/communicator.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/check_collective.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(std::unique_ptr<Engine> engine,
                                                                   device::Context& context) {
  if (engine == nullptr) return absl::InvalidArgumentError("communicator: engine is null");
  BRIGADE_ASSIGN_OR_RETURN(auto last, context.CreateEvent("communicator"));
  return std::unique_ptr<Communicator>(
      new Communicator(std::move(engine), context, std::move(last)));
}

Communicator::Communicator(std::unique_ptr<Engine> engine, device::Context& context,
                           std::unique_ptr<device::Event> last)
    : engine_(std::move(engine)),
      context_(context),
      order_(std::move(last)),
      sends_(static_cast<size_t>(engine_->size())),
      receives_(static_cast<size_t>(engine_->size())) {}

absl::Status Communicator::Run(Collective collective, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckCollective(collective, rank(), size(), context_.device(), stream));
  BRIGADE_RETURN_IF_ERROR(engine_->status());
  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  if (collective.signature.kind == CollectiveKind::kSend) {
    std::vector<uint64_t>& calls = rank() == collective.signature.root ? sends_ : receives_;
    collective.sequence = calls[static_cast<size_t>(collective.peer)]++;
  } else {
    collective.sequence = calls_++;
  }
  BRIGADE_RETURN_IF_ERROR(engine_->Run(collective, stream));
  return order_.End(stream);
}

absl::Status Communicator::AllReduce(const void* input, void* output, int64_t count,
                                     const ReduceOptions& options, device::Stream& stream) {
  return Run({.signature = {CollectiveKind::kAllReduce, options.algorithm, options.dtype,
                            options.op, count},
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::ReduceScatter(const void* input, void* output, int64_t count,
                                         const ReduceOptions& options, device::Stream& stream) {
  return Run({.signature = {CollectiveKind::kReduceScatter, options.algorithm, options.dtype,
                            options.op, count},
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::AllGather(const void* input, void* output, int64_t count,
                                     const MoveOptions& options, device::Stream& stream) {
  return Run(
      {.signature = {CollectiveKind::kAllGather, options.algorithm, options.dtype, {}, count},
       .input = input,
       .output = output},
      stream);
}

absl::Status Communicator::AllToAll(const void* input, void* output, int64_t count,
                                    const MoveOptions& options, device::Stream& stream) {
  return Run({.signature = {CollectiveKind::kAllToAll, options.algorithm, options.dtype, {}, count},
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::Broadcast(const void* input, void* output, int64_t count, int root,
                                     const MoveOptions& options, device::Stream& stream) {
  return Run(
      {.signature = {CollectiveKind::kBroadcast, options.algorithm, options.dtype, {}, count, root},
       .input = input,
       .output = output},
      stream);
}

absl::Status Communicator::Send(const void* input, int64_t count, int to,
                                const MoveOptions& options, device::Stream& stream) {
  return Run(
      {.signature = {CollectiveKind::kSend, options.algorithm, options.dtype, {}, count, rank()},
       .input = input,
       .peer = to},
      stream);
}

absl::Status Communicator::Receive(void* output, int64_t count, int from,
                                   const MoveOptions& options, device::Stream& stream) {
  return Run(
      {.signature = {CollectiveKind::kSend, options.algorithm, options.dtype, {}, count, from},
       .output = output,
       .peer = from},
      stream);
}

absl::Status Communicator::Barrier(device::Stream& stream) {
  return Run({.signature = {CollectiveKind::kBarrier}}, stream);
}

absl::StatusOr<std::vector<int64_t>> Communicator::AllGatherHost(absl::Span<const int64_t> values) {
  return AllGatherHost(HostCollective::kAllGather, values);
}

absl::StatusOr<std::vector<int64_t>> Communicator::AllGatherHost(HostCollective collective,
                                                                 absl::Span<const int64_t> values) {
  BRIGADE_RETURN_IF_ERROR(engine_->status());
  std::vector<int64_t> all(values.size() * static_cast<size_t>(size()));
  BRIGADE_RETURN_IF_ERROR(engine_->AllGatherHost(
      HostFingerprint(collective, values.size(), calls_++), values, absl::MakeSpan(all)));
  return all;
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Split(int color, int key) {
  BRIGADE_ASSIGN_OR_RETURN(auto all, AllGatherHost(HostCollective::kSplit, {color, key}));
  std::vector<std::tuple<int64_t, int>> members;  // key, rank
  for (int rank = 0; rank < size(); ++rank) {
    const auto i = static_cast<size_t>(2 * rank);
    if (color >= 0 && all[i] == color) members.emplace_back(all[i + 1], rank);
  }
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& [each_key, rank] : members) ranks.push_back(rank);
  BRIGADE_ASSIGN_OR_RETURN(auto engine, engine_->Split(ranks, 2 * splits_++));
  if (engine == nullptr) return std::unique_ptr<Communicator>();
  return Create(std::move(engine), context_);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Shrink(absl::Span<const int> lost) {
  std::vector<int> ranks;
  for (const int rank : lost) {
    if (rank < 0 || rank >= size() || rank == this->rank()) {
      return absl::InvalidArgumentError(absl::StrCat("shrink: rank ", this->rank(), " of ", size(),
                                                     " cannot go on without rank ", rank));
    }
  }
  for (int rank = 0; rank < size(); ++rank) {
    if (std::find(lost.begin(), lost.end(), rank) == lost.end()) ranks.push_back(rank);
  }
  if (lost.empty() && engine_->status().ok()) {
    BRIGADE_RETURN_IF_ERROR(AllGatherHost(HostCollective::kShrink, {}).status());
  } else if (engine_->status().ok()) {
    const Fingerprint mine = HostFingerprint(HostCollective::kShrink, 0, calls_++);
    engine_->Abort(absl::AbortedError(
        absl::StrCat(Describe(this->rank(), mine), ", without rank ", absl::StrJoin(lost, ", "))));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto engine, engine_->CreateSubgroup(ranks, lost, 2 * shrinks_++ + 1));
  return Create(std::move(engine), context_);
}

}  // namespace brigade::collectives
