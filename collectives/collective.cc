#include "brigade/collectives/collective.h"

#include "absl/strings/str_cat.h"

namespace brigade::collectives {

absl::string_view Name(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce:
      return "all_reduce";
    case CallKind::kReduceScatter:
      return "reduce_scatter";
    case CallKind::kAllGather:
      return "all_gather";
    case CallKind::kAllToAll:
      return "all_to_all";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kSend:
      return "send";
    case CallKind::kBarrier:
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

std::string ToString(const CallShape& shape) {
  static constexpr absl::string_view kOps[] = {"sum", "min", "max"};
  const std::string elements = absl::StrCat(shape.count, " ", precision::Name(shape.dtype));
  switch (shape.kind) {
    case CallKind::kAllReduce:
    case CallKind::kReduceScatter:
      return absl::StrCat(Name(shape.kind), "(", kOps[static_cast<int>(shape.op)], " of ", elements,
                          ", ", Name(shape.algorithm), ")");
    case CallKind::kBroadcast:
    case CallKind::kSend:
      return absl::StrCat(Name(shape.kind), "(", elements, ", from rank ", shape.root, ")");
    case CallKind::kBarrier:
      return "barrier()";
    default:
      return absl::StrCat(Name(shape.kind), "(", elements, ", ", Name(shape.algorithm), ")");
  }
}

std::string DescribeCall(int rank, absl::string_view call, uint64_t sequence) {
  return absl::StrCat("rank ", rank, " calls ", call, " as its call ", sequence);
}

std::string Describe(int rank, const Fingerprint& fingerprint) {
  const std::string call = fingerprint.on_host ? "split()" : ToString(fingerprint.shape);
  return DescribeCall(rank, call, fingerprint.sequence);
}

int64_t InputElements(const CallShape& shape, int rank, int size) {
  switch (shape.kind) {
    case CallKind::kReduceScatter:
    case CallKind::kAllToAll:
      return shape.count * size;
    case CallKind::kBroadcast:
    case CallKind::kSend:
      return rank == shape.root ? shape.count : 0;
    case CallKind::kBarrier:
      return 0;
    default:
      return shape.count;
  }
}

int64_t OutputElements(const CallShape& shape, int rank, int size) {
  switch (shape.kind) {
    case CallKind::kAllGather:
    case CallKind::kAllToAll:
      return shape.count * size;
    case CallKind::kSend:
      return rank == shape.root ? 0 : shape.count;
    case CallKind::kBarrier:
      return 0;
    default:
      return shape.count;
  }
}

}  // namespace brigade::collectives
