#include "brigade/collectives/tuning/auto_algorithm.h"

#include <bit>
#include <utility>

#include "brigade/collectives/tuning/select.h"

namespace brigade::collectives {
namespace {

// Whether an algorithm with partial sums moves them in a wider type.
bool Widens(CollectiveSignature signature) {
  signature.algorithm = Algorithm::kRing;
  return PartialType(signature) != signature.dtype;
}

}  // namespace

AutoAlgorithm::AutoAlgorithm(Topology topology)
    : topology_(std::move(topology)), ranks_(topology_.ranks()) {}

Algorithm AutoAlgorithm::Choose(const CollectiveSignature& signature) {
  const int64_t parts = signature.kind == CollectiveKind::kAllReduce ? 1 : ranks_;
  const int64_t bytes = signature.count * parts * precision::SizeOf(signature.dtype);
  const int power = bytes < 2 ? 0 : std::bit_width(static_cast<uint64_t>(bytes - 1));
  Algorithm& chosen = chosen_[static_cast<size_t>(signature.kind)][Widens(signature) ? 1 : 0]
                             [static_cast<size_t>(power)];
  if (chosen == Algorithm::kAuto) chosen = Ask(signature, int64_t{1} << power);
  return chosen;
}

Algorithm AutoAlgorithm::Ask(const CollectiveSignature& signature, int64_t bytes) const {
  const auto direct = Select(topology_, signature.kind, bytes, {Algorithm::kDirect});
  const auto others = Select(topology_, signature.kind, bytes * (Widens(signature) ? 2 : 1));
  if (!direct.ok() || !others.ok()) return Algorithm::kDirect;
  return others->seconds < direct->seconds ? others->algorithm : Algorithm::kDirect;
}

}  // namespace brigade::collectives
