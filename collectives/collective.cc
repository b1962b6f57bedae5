#include "brigade/collectives/collective.h"

#include "absl/strings/str_cat.h"
#include "brigade/precision/dtype_names.h"

namespace brigade::collectives {
namespace {

std::string WayOf(const CollectiveSignature& signature) {
  const std::string nodes =
      signature.ranks_per_node == 1 ? "" : absl::StrCat(" on nodes of ", signature.ranks_per_node);
  return absl::StrCat(Name(signature.algorithm), nodes);
}

}  // namespace

absl::string_view Name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kShift:
      return "shift";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kSend:
      return "send";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "invalid";
}

std::string ToString(const CollectiveSignature& signature) {
  const std::string elements =
      absl::StrCat(signature.count, " ", precision::ShortName(signature.dtype));
  switch (signature.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter: {
      const std::string rounding = signature.reduction == Reduction::kRoundedOnce
                                       ? ""
                                       : absl::StrCat(", ", Name(signature.reduction));
      return absl::StrCat(Name(signature.kind), "(", Name(signature.op), " of ", elements, ", ",
                          WayOf(signature), rounding, ")");
    }
    case CollectiveKind::kAllGather:
      return absl::StrCat(Name(signature.kind), "(", elements, ", ", WayOf(signature), ")");
    case CollectiveKind::kAllToAll:
      return absl::StrCat(Name(signature.kind), "(", elements, ")");
    case CollectiveKind::kShift:
      return absl::StrCat(Name(signature.kind), "(", elements, ", by ", signature.root, ")");
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kSend:
      return absl::StrCat(Name(signature.kind), "(", elements, ", from rank ", signature.root, ")");
    case CollectiveKind::kBarrier:
      break;
  }
  return "barrier()";
}

std::string DescribeCollective(int rank, absl::string_view collective, uint64_t sequence) {
  return absl::StrCat("rank ", rank, " calls ", collective, " as its call ", sequence);
}

absl::string_view Name(HostCollective collective) {
  switch (collective) {
    case HostCollective::kNone:
      break;
    case HostCollective::kAllGather:
      return "all_gather_host";
    case HostCollective::kSplit:
      return "split";
    case HostCollective::kShrink:
      return "shrink";
    case HostCollective::kHostChannel:
      return "create_host_channel";
  }
  return "invalid";
}

Fingerprint HostFingerprint(HostCollective collective, size_t values, uint64_t sequence) {
  CollectiveSignature signature;
  signature.count = static_cast<int64_t>(values);
  return {signature, sequence, collective};
}

std::string Describe(int rank, const Fingerprint& fingerprint) {
  const HostCollective on_host = fingerprint.on_host;
  std::string collective;
  if (on_host == HostCollective::kNone) {
    collective = ToString(fingerprint.signature);
  } else if (on_host == HostCollective::kAllGather) {
    collective = absl::StrCat(Name(on_host), "(", fingerprint.signature.count, " values)");
  } else {
    collective = absl::StrCat(Name(on_host), "()");
  }
  return DescribeCollective(rank, collective, fingerprint.sequence);
}

absl::Status MismatchError(int rank, const Fingerprint& fingerprint, int other,
                           const Fingerprint& other_fingerprint) {
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(rank, fingerprint), ", but ", Describe(other, other_fingerprint)));
}

precision::DType PartialType(const CollectiveSignature& signature) {
  const bool sums = signature.kind == CollectiveKind::kAllReduce ||
                    signature.kind == CollectiveKind::kReduceScatter;
  const bool widens = sums && signature.op == kernels::ReduceOp::kSum &&
                      signature.reduction == Reduction::kFp32Partials &&
                      !AddsAtOnce(signature.algorithm) && precision::SizeOf(signature.dtype) == 2;
  return widens ? precision::DType::kFloat32 : signature.dtype;
}

int64_t InputElements(const CollectiveSignature& signature, int rank, int size) {
  switch (signature.kind) {
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return signature.count * size;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kSend:
      return rank == signature.root ? signature.count : 0;
    case CollectiveKind::kBarrier:
      return 0;
    default:
      return signature.count;
  }
}

int64_t OutputElements(const CollectiveSignature& signature, int rank, int size) {
  switch (signature.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll:
      return signature.count * size;
    case CollectiveKind::kSend:
      return rank == signature.root ? 0 : signature.count;
    case CollectiveKind::kBarrier:
      return 0;
    default:
      return signature.count;
  }
}

}  // namespace brigade::collectives
