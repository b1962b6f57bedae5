#include "brigade/parallel/context/context_ranks.h"

#include "absl/strings/str_cat.h"

namespace brigade::parallel {

absl::InlinedVector<PositionRun, 2> PositionRunsOf(ContextExchange exchange, int64_t positions,
                                                   int ranks, int rank) {
  if (ranks == 1 || exchange == ContextExchange::kUlysses) {
    return {{0, rank * (positions / ranks), positions / ranks}};
  }
  const auto chunks = ZigzagRuns(positions, ranks, rank);
  return {chunks.begin(), chunks.end()};
}

absl::Status ContextRanks::Check(int64_t positions) const {
  if (is_ring()) return CheckZigzag(positions, size());
  if (positions >= 1 && positions % size() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(positions, " positions cannot be cut over ", size(), " context ranks"));
}

}  // namespace brigade::parallel
