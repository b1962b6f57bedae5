#include "brigade/collectives/tuning/route.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace brigade::collectives {

absl::string_view Name(Route route) {
  switch (route) {
    case Route::kDirect:
      return "direct";
    case Route::kDirectOneShot:
      return "direct_one_shot";
    case Route::kRing:
      return "ring";
    case Route::kInterleavedRing:
      return "interleaved_ring";
    case Route::kRingPerPort:
      return "ring_per_port";
    case Route::kOpposedRings:
      return "opposed_rings";
    case Route::kBidirectionalRing:
      return "bidirectional_ring";
    case Route::kHalvingDoubling:
      return "halving_doubling";
    case Route::kDoubleTree:
      return "double_tree";
    case Route::kHierarchical:
      return "hierarchical";
  }
  return "unknown";
}

std::optional<Algorithm> AlgorithmOf(Route route) {
  switch (route) {
    case Route::kDirect:
      return Algorithm::kDirect;
    case Route::kRing:
      return Algorithm::kRing;
    case Route::kBidirectionalRing:
      return Algorithm::kBidirectionalRing;
    case Route::kHalvingDoubling:
      return Algorithm::kHalvingDoubling;
    default:
      return std::nullopt;
  }
}

absl::Status CheckExists(const Topology& topology, Route route, CollectiveKind operation) {
  const auto refuse = [&](const auto&... why) {
    return absl::FailedPreconditionError(absl::StrCat(Name(route), " ", why...));
  };
  const bool of_all_reduce = route == Route::kDirectOneShot || route == Route::kDoubleTree;
  if (of_all_reduce && operation != CollectiveKind::kAllReduce) {
    return refuse("is for all_reduce, not for ", Name(operation));
  }
  const int p = topology.ranks();
  if (route == Route::kHalvingDoubling && (p & (p - 1)) != 0) {
    return refuse("needs a power of two, there are ", p, " ranks");
  }
  const bool needs_even = route == Route::kHalvingDoubling || route == Route::kHierarchical ||
                          route == Route::kInterleavedRing;
  if (needs_even && !topology.Even()) {
    const auto [least, most] =
        std::minmax_element(topology.ranks_of_node.begin(), topology.ranks_of_node.end());
    return refuse("needs nodes of one size, they have ", *least, " to ", *most, " ranks");
  }
  return absl::OkStatus();
}

}  // namespace brigade::collectives
