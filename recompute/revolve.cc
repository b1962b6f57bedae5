#include "brigade/recompute/revolve.h"

#include <cmath>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/internal/nested.h"

namespace brigade::recompute {
namespace {

using internal::Choice;

absl::Status Validate(int steps, int checkpoints) {
  if (steps < 1 || steps > kMaxStages) {
    return absl::InvalidArgumentError(
        absl::StrCat("steps have to be from 1 to ", kMaxStages, ", not ", steps));
  }
  if (checkpoints < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoints have to be 1 at least, not ", checkpoints));
  }
  return absl::OkStatus();
}

constexpr int64_t kInfinite = int64_t{1} << 60;

// RevolveForwardSteps; without a checkpoint `c` there can be one step alone.
int64_t ForwardSteps(int64_t steps, int64_t c) {
  if (steps == 1) return 0;
  if (c == 0) return kInfinite;
  // C(c + r, c) and C(c + r, r - 1), for r = 0.
  int64_t reach = 1;
  int64_t saved = 0;
  int64_t r = 0;
  while (reach < steps) {
    ++r;
    // C(c + r, r - 1) = C(c + r - 1, c) (c + r) / (c + 1), as C(n, k) = C(n - 1, k - 1) n / k.
    saved = reach * (c + r) / (c + 1);
    reach = reach * (c + r) / r;
  }
  return r * steps - saved;
}

void AppendRevolve(int first, int last, int checkpoints, std::vector<Operation>& operations) {
  internal::AppendNested(
      first, last, checkpoints,
      [](int from, int to, int64_t room) -> Choice {
        if (from == to) return {};
        const int64_t steps = to - from + 1;
        Choice best;
        int64_t least = 2 * kInfinite;
        for (int64_t j = 1; j < steps; ++j) {
          const int64_t count = j + ForwardSteps(steps - j, room - 1) + ForwardSteps(j, room);
          if (count < least) {
            least = count;
            best = {.split = from + static_cast<int>(j), .kept = 1};
          }
        }
        return best;
      },
      operations);
}

}  // namespace

absl::StatusOr<int64_t> RevolveForwardSteps(int steps, int checkpoints) {
  BRIGADE_RETURN_IF_ERROR(Validate(steps, checkpoints));
  return ForwardSteps(steps, checkpoints);
}

absl::StatusOr<std::vector<Operation>> Revolve(int steps, int checkpoints) {
  BRIGADE_RETURN_IF_ERROR(Validate(steps, checkpoints));
  std::vector<Operation> operations;
  AppendRevolve(0, steps - 1, checkpoints, operations);
  return operations;
}

absl::StatusOr<DiskRevolveSchedule> DiskRevolve(int steps, int checkpoints, TierCosts costs) {
  BRIGADE_RETURN_IF_ERROR(Validate(steps, checkpoints));
  for (const double cost : {costs.write, costs.read}) {
    if (!std::isfinite(cost) || cost < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the costs of writing and reading a state have to be finite and not negative, not ",
          costs.write, " and ", costs.read));
    }
  }
  // For each number of steps that are left: the least cost, and the steps of the first part, 0 for
  // a last part that needs no second tier.
  const size_t size = static_cast<size_t>(steps) + 1;
  std::vector<double> in_memory(size);
  for (size_t l = 1; l < size; ++l) {
    in_memory[l] = static_cast<double>(ForwardSteps(static_cast<int64_t>(l), checkpoints));
  }
  std::vector<double> least = in_memory;
  std::vector<int> part(size);
  for (size_t l = 2; l < size; ++l) {
    for (size_t j = 1; j < l; ++j) {
      const double cost =
          costs.write + static_cast<double>(j) + least[l - j] + costs.read + in_memory[j];
      if (cost < least[l]) {
        least[l] = cost;
        part[l] = static_cast<int>(j);
      }
    }
  }

  // The first step of each part, and the end of the last.
  std::vector<int> begins = {0};
  while (const int length = part[static_cast<size_t>(steps - begins.back())]) {
    begins.push_back(begins.back() + length);
  }
  const size_t parts = begins.size();
  begins.push_back(steps);

  DiskRevolveSchedule schedule = {.cost = least.back()};
  std::vector<Operation>& operations = schedule.operations;
  if (parts > 1) internal::AppendWritingForwards(begins, begins[parts - 1], operations);
  for (size_t p = parts; p-- > 0;) {
    if (p < parts - 1) operations.push_back({.action = Action::kRead, .stage = begins[p]});
    AppendRevolve(begins[p], begins[p + 1] - 1, checkpoints, operations);
    if (parts > 1) operations.push_back({.action = Action::kDrop, .stage = begins[p]});
  }
  return schedule;
}

}  // namespace brigade::recompute
