#include "brigade/parallel/context/zigzag.h"

#include "absl/strings/str_cat.h"

namespace brigade::parallel {

absl::Status CheckZigzag(int64_t positions, int ranks) {
  if (ranks >= 1 && positions >= 1 && positions % (2 * ranks) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(positions, " positions cannot be cut into two ",
                                                 "chunks for each of ", ranks, " context ranks"));
}

std::array<PositionRun, 2> ZigzagRuns(int64_t positions, int ranks, int rank) {
  const int64_t chunk = positions / (2 * ranks);
  return {{{0, rank * chunk, chunk}, {chunk, (2 * ranks - 1 - rank) * chunk, chunk}}};
}

}  // namespace brigade::parallel
