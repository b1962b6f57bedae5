#include "brigade/recompute/internal/reads.h"

#include <algorithm>

namespace brigade::recompute::internal {

std::vector<Operation> WithFetches(absl::Span<const Operation> operations) {
  std::vector<Operation> result;
  // The next kRead that has no kFetch yet.
  const auto find_read = [&](auto from) {
    return std::find_if(from, operations.end(), [](const Operation& operation) {
      return operation.action == Action::kRead;
    });
  };
  auto next = find_read(operations.begin());
  const auto fetch = [&] {
    if (next == operations.end()) return;
    result.push_back({.action = Action::kFetch, .stage = next->stage});
    next = find_read(next + 1);
  };
  bool is_backward = false;
  for (const Operation& operation : operations) {
    if (operation.action == Action::kBackward && !is_backward) {
      is_backward = true;
      fetch();
    }
    result.push_back(operation);
    if (operation.action == Action::kRead) fetch();
  }
  return result;
}

ReadPlaces::ReadPlaces(absl::Span<const Operation> operations,
                       absl::FunctionRef<int64_t(int stage)> input_bytes) {
  int turn = 0;
  for (const Operation& operation : operations) {
    if (operation.action != Action::kFetch) continue;
    bytes_[turn] = std::max(bytes_[turn], input_bytes(operation.stage));
    turn = 1 - turn;
  }
}

bool ReadPlaces::Fetch(int stage) {
  if (stage_[next_].has_value()) return false;
  stage_[next_] = stage;
  next_ = 1 - next_;
  return true;
}

bool ReadPlaces::Drop(int stage) {
  for (std::optional<int>& place : stage_) {
    if (place != stage) continue;
    place.reset();
    return true;
  }
  return false;
}

std::optional<int64_t> ReadPlaces::BeginBeforeEnd(int stage) const {
  if (stage_[0] == stage) return bytes_[0];
  if (stage_[1] == stage) return bytes_[0] + bytes_[1];
  return std::nullopt;
}

int64_t ReadPlaces::bytes() const {
  if (stage_[1].has_value()) return bytes_[0] + bytes_[1];
  return stage_[0].has_value() ? bytes_[0] : 0;
}

}  // namespace brigade::recompute::internal
