#include "brigade/collectives/communicator.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/call_marks.h"
#include "brigade/collectives/check_collective.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::collectives {

namespace {

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

CollectiveSignature ReductionOf(CollectiveKind kind, int64_t count, precision::DType dtype,
                                const ReduceOptions& options) {
  return {.kind = kind,
          .algorithm = options.algorithm,
          .dtype = dtype,
          .op = options.op,
          .count = count,
          .reduction = options.reduction};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(
    std::unique_ptr<Engine> engine, device::Context& context, const CommunicatorOptions& options) {
  if (engine == nullptr) return Invalid("communicator: engine is null");
  BRIGADE_ASSIGN_OR_RETURN(CallOrder order, CallOrder::Create(context, "communicator"));
  std::unique_ptr<Communicator> communicator(
      new Communicator(std::move(engine), context, std::move(order)));
  if (options.topology.has_value()) {
    BRIGADE_RETURN_IF_ERROR(communicator->SetTopology(*options.topology));
  }
  return communicator;
}

Communicator::Communicator(std::unique_ptr<Engine> engine, device::Context& context,
                           CallOrder order)
    : engine_(std::move(engine)),
      context_(context),
      order_(std::move(order)),
      sends_(static_cast<size_t>(engine_->size())),
      receives_(static_cast<size_t>(engine_->size())) {}

absl::Status Communicator::SetTopology(const Topology& topology) {
  BRIGADE_RETURN_IF_ERROR(Validate(topology));
  if (topology.ranks() != size()) {
    return Invalid("communicator: the topology has ", topology.ranks(), " ranks, the group ",
                   size());
  }
  topology_ = topology;
  auto_algorithm_.emplace(topology);
  return absl::OkStatus();
}

absl::StatusOr<CollectiveSignature> Communicator::Resolve(CollectiveSignature signature) {
  BRIGADE_RETURN_IF_ERROR(CheckSignature(signature, size()));
  if (!HasAlgorithms(signature.kind)) return signature;
  const bool adds = signature.kind != CollectiveKind::kAllGather;
  if (adds && !Exists(signature.reduction, signature.algorithm)) {
    return Invalid(Name(signature.kind), ": algorithm ", Name(signature.algorithm),
                   " has no reduction ", Name(signature.reduction));
  }
  BRIGADE_RETURN_IF_ERROR(ChooseAlgorithm(signature));
  BRIGADE_RETURN_IF_ERROR(PlaceOnNodes(signature));
  return signature;
}

absl::Status Communicator::ChooseAlgorithm(CollectiveSignature& signature) {
  if (signature.algorithm == Algorithm::kNative && !engine_->HasNative(signature)) {
    return Invalid(Name(signature.kind), ": the engine has no native collective for the ",
                   Name(signature.op), " of ", precision::ShortName(signature.dtype));
  }
  if (signature.algorithm != Algorithm::kAuto) return absl::OkStatus();
  const bool adds = signature.kind != CollectiveKind::kAllGather;
  signature.algorithm = Algorithm::kDirect;
  if (adds && signature.reduction == Reduction::kRoundedOnce) return absl::OkStatus();
  const bool may_be_native = !adds || signature.reduction == Reduction::kRoundedPerHop;
  if (may_be_native && engine_->HasNative(signature)) {
    signature.algorithm = Algorithm::kNative;
  } else if (auto_algorithm_.has_value()) {
    signature.algorithm = auto_algorithm_->Choose(signature);
  }
  return absl::OkStatus();
}

// Gives the algorithms that know of nodes their size.
absl::Status Communicator::PlaceOnNodes(CollectiveSignature& signature) const {
  signature.ranks_per_node = 1;
  if (HasAllReducesAlone(signature.algorithm) && signature.kind != CollectiveKind::kAllReduce) {
    return Invalid(Name(signature.kind), ": ", Name(signature.algorithm), " is for all_reduce");
  }
  const bool needs_nodes = signature.algorithm == Algorithm::kHierarchical;
  if (!needs_nodes && signature.algorithm != Algorithm::kDoubleTree) return absl::OkStatus();
  if (!topology_.has_value()) {
    if (!needs_nodes) return absl::OkStatus();
    return Invalid(Name(signature.kind),
                   ": hierarchical needs a topology, and the communicator has none");
  }
  const std::vector<int>& nodes = topology_->ranks_of_node;
  const auto other =
      std::find_if(nodes.begin(), nodes.end(), [&](int ranks) { return ranks != nodes.front(); });
  if (other == nodes.end()) {
    signature.ranks_per_node = nodes.front();
    const bool has_one_level = nodes.size() == 1 || nodes.front() == 1;
    if (needs_nodes && has_one_level) {
      signature.algorithm = Algorithm::kDirect;
      signature.ranks_per_node = 1;
    }
  } else if (needs_nodes) {
    return Invalid(Name(signature.kind), ": hierarchical needs nodes of one size: node 0 has ",
                   nodes.front(), " ranks, node ", other - nodes.begin(), " has ", *other);
  }
  return absl::OkStatus();
}

absl::StatusOr<Workspace> Communicator::WorkspaceFor(const CollectiveSignature& signature) {
  BRIGADE_ASSIGN_OR_RETURN(auto resolved, Resolve(signature));
  return engine_->WorkspaceFor(resolved);
}

absl::Status Communicator::Reserve(const CollectiveSignature& signature) {
  BRIGADE_RETURN_IF_ERROR(CheckHasStreams(signature.kind));
  BRIGADE_ASSIGN_OR_RETURN(auto resolved, Resolve(signature));
  return engine_->Reserve(resolved);
}

absl::StatusOr<Registration> Communicator::Register(void* data, int64_t bytes) {
  if (bytes < 0 || (data == nullptr && bytes > 0)) {
    return Invalid("register: ", bytes, " bytes at ", data == nullptr ? "null" : "an address");
  }
  BRIGADE_RETURN_IF_ERROR(status());
  if (bytes == 0) return Registration();
  return engine_->Register(data, bytes);
}

absl::Status Communicator::Synchronize(device::Stream& stream) const {
  BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
  return status();
}

absl::Status Communicator::CheckSizes(CollectiveKind kind, size_t input, size_t output) const {
  const auto ranks = static_cast<size_t>(size());
  bool fits = input == output;
  if (kind == CollectiveKind::kReduceScatter) fits = input == ranks * output;
  if (kind == CollectiveKind::kAllGather) fits = output == ranks * input;
  if (kind == CollectiveKind::kAllToAll) fits = fits && input % ranks == 0;
  if (fits) return absl::OkStatus();
  return Invalid(Name(kind), ": an input of ", input, " elements and an output of ", output,
                 " do not fit between ", ranks, " ranks");
}

absl::Status Communicator::CheckHasStreams(CollectiveKind kind) const {
  if (!is_host_channel_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(Name(kind), ": a host channel has no calls on streams"));
}

absl::Status Communicator::Run(Collective collective, device::Stream& stream) {
  BRIGADE_RETURN_IF_ERROR(CheckHasStreams(collective.signature.kind));
  BRIGADE_ASSIGN_OR_RETURN(collective.signature, Resolve(collective.signature));
  BRIGADE_RETURN_IF_ERROR(CheckArguments(collective, rank(), size(), context_.device(), stream));
  BRIGADE_RETURN_IF_ERROR(engine_->status());
  BRIGADE_RETURN_IF_ERROR(order_.Begin(stream));
  if (collective.signature.kind == CollectiveKind::kSend) {
    std::vector<uint64_t>& calls = rank() == collective.signature.root ? sends_ : receives_;
    collective.sequence = calls[static_cast<size_t>(collective.peer)]++;
  } else {
    collective.sequence = calls_++;
  }
  const bool is_marked = MarkedCalls::Contain(context_);
  if (is_marked) {
    BRIGADE_RETURN_IF_ERROR(MarkCall(collective.signature, rank(), size(), stream));
  }
  BRIGADE_RETURN_IF_ERROR(engine_->Run(collective, stream));
  if (is_marked) BRIGADE_RETURN_IF_ERROR(MarkEndOfCall(stream));
  return order_.End(stream);
}

absl::Status Communicator::AllReduce(const void* input, void* output, int64_t count,
                                     precision::DType dtype, const ReduceOptions& options,
                                     device::Stream& stream) {
  return Run({.signature = ReductionOf(CollectiveKind::kAllReduce, count, dtype, options),
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::ReduceScatter(const void* input, void* output, int64_t count,
                                         precision::DType dtype, const ReduceOptions& options,
                                         device::Stream& stream) {
  return Run({.signature = ReductionOf(CollectiveKind::kReduceScatter, count, dtype, options),
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::AllGather(const void* input, void* output, int64_t count,
                                     precision::DType dtype, const GatherOptions& options,
                                     device::Stream& stream) {
  return Run({.signature = {.kind = CollectiveKind::kAllGather,
                            .algorithm = options.algorithm,
                            .dtype = dtype,
                            .count = count},
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::AllToAll(const void* input, void* output, int64_t count,
                                    precision::DType dtype, device::Stream& stream) {
  return Run({.signature = {.kind = CollectiveKind::kAllToAll, .dtype = dtype, .count = count},
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::Shift(const void* input, void* output, int64_t count,
                                 precision::DType dtype, int distance, device::Stream& stream) {
  const int ahead = distance % size();
  return Run({.signature = {.kind = CollectiveKind::kShift,
                            .dtype = dtype,
                            .count = count,
                            .root = ahead < 0 ? ahead + size() : ahead},
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::Broadcast(const void* input, void* output, int64_t count,
                                     precision::DType dtype, int root, device::Stream& stream) {
  return Run({.signature = {.kind = CollectiveKind::kBroadcast,
                            .dtype = dtype,
                            .count = count,
                            .root = root},
              .input = input,
              .output = output},
             stream);
}

absl::Status Communicator::Send(const void* input, int64_t count, precision::DType dtype, int to,
                                device::Stream& stream) {
  return Run(
      {.signature = {.kind = CollectiveKind::kSend, .dtype = dtype, .count = count, .root = rank()},
       .input = input,
       .peer = to},
      stream);
}

absl::Status Communicator::Receive(void* output, int64_t count, precision::DType dtype, int from,
                                   device::Stream& stream) {
  return Run(
      {.signature = {.kind = CollectiveKind::kSend, .dtype = dtype, .count = count, .root = from},
       .output = output,
       .peer = from},
      stream);
}

void Communicator::Abort(const absl::Status& reason) {
  engine_->Abort(reason.ok() ? absl::CancelledError("aborted") : reason);
}

int64_t Communicator::sent_bytes(int to) const {
  return to < 0 || to >= size() ? 0 : engine_->sent_bytes(to);
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
  return CreateOf(std::move(engine), ranks);
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::CreateHostChannel() {
  BRIGADE_RETURN_IF_ERROR(AllGatherHost(HostCollective::kHostChannel, {}).status());
  BRIGADE_ASSIGN_OR_RETURN(auto engine, engine_->CreateHostChannel(2 * splits_++));
  BRIGADE_ASSIGN_OR_RETURN(auto channel, Create(std::move(engine), context_));
  channel->is_host_channel_ = true;
  return channel;
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::CreateOf(std::unique_ptr<Engine> engine,
                                                                     absl::Span<const int> ranks) {
  CommunicatorOptions options;
  if (topology_.has_value()) options.topology = SubsetOf(*topology_, ranks);
  BRIGADE_ASSIGN_OR_RETURN(auto communicator, Create(std::move(engine), context_, options));
  communicator->is_host_channel_ = is_host_channel_;
  return communicator;
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
  return CreateOf(std::move(engine), ranks);
}

}  // namespace brigade::collectives
