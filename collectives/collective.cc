#include "brigade/collectives/collective.h"

#include "absl/strings/str_cat.h"

namespace brigade::collectives {

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
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kSend:
      return "send";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "invalid";
}

absl::string_view Name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kBidirectionalRing:
      return "bidirectional_ring";
    case Algorithm::kHalvingDoubling:
      return "halving_doubling";
  }
  return "invalid";
}

std::string ToString(const CollectiveSignature& signature) {
  static constexpr absl::string_view kOps[] = {"sum", "min", "max"};
  const std::string elements = absl::StrCat(signature.count, " ", precision::Name(signature.dtype));
  switch (signature.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduceScatter:
      return absl::StrCat(Name(signature.kind), "(", kOps[static_cast<int>(signature.op)], " of ",
                          elements, ", ", Name(signature.algorithm), ")");
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kSend:
      return absl::StrCat(Name(signature.kind), "(", elements, ", from rank ", signature.root, ")");
    case CollectiveKind::kBarrier:
      return "barrier()";
    default:
      return absl::StrCat(Name(signature.kind), "(", elements, ", ", Name(signature.algorithm),
                          ")");
  }
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
