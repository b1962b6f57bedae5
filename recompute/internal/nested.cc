#include "brigade/recompute/internal/nested.h"

#include <algorithm>

namespace brigade::recompute::internal {

void AppendForwards(int first, int end, std::vector<Operation>& operations) {
  for (int stage = first; stage < end - 1; ++stage) {
    operations.push_back(
        {.action = Action::kForward, .stage = stage, .far_end = (end - 1 - stage) % 2 == 1});
  }
  operations.push_back({.action = Action::kForwardKeep, .stage = end - 1});
}

void AppendWritingForwards(absl::Span<const int> written, int end,
                           std::vector<Operation>& operations) {
  std::vector<Operation> forwards;
  AppendForwards(0, end, forwards);
  for (const Operation& forward : forwards) {
    if (std::find(written.begin(), written.end(), forward.stage) != written.end()) {
      operations.push_back({.action = Action::kWrite, .stage = forward.stage});
    }
    operations.push_back(forward);
  }
}

void AppendNested(int first, int last, int64_t room, Choose choose,
                  std::vector<Operation>& operations) {
  for (;;) {
    const Choice choice = choose(first, last, room);
    if (choice.split == 0) {
      operations.push_back(
          {.action = Action::kForwardSave, .stage = first, .option = choice.option});
      if (first < last) AppendNested(first + 1, last, room - choice.kept, choose, operations);
      operations.push_back({.action = Action::kBackward, .stage = first, .option = choice.option});
      return;
    }
    AppendForwards(first, choice.split, operations);
    AppendNested(choice.split, last, room - choice.kept, choose, operations);
    operations.push_back({.action = Action::kDrop, .stage = choice.split});
    last = choice.split - 1;
  }
}

}  // namespace brigade::recompute::internal
