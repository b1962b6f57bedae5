#ifndef BRIGADE_RECOMPUTE_INTERNAL_NESTED_H_
#define BRIGADE_RECOMPUTE_INTERNAL_NESTED_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "brigade/recompute/operation.h"

namespace brigade::recompute::internal {

// How a schedule for stages [first, last] begins, when the input of `first` is in memory. One of
// two, which differ by `split`.
struct Choice {
  // 0: saves `option` of `first`, goes through [first + 1, last], and then back through `first`.
  // Else first < split <= last: goes forward to stage `split` and keeps its input, goes through
  // [split, last], drops that input, and goes through [first, split - 1] from the beginning.
  int split = 0;
  int option = 0;
  // What this keeps, of the room for all, while the part that follows is gone through.
  int64_t kept = 0;
};

using Choose = absl::FunctionRef<Choice(int first, int last, int64_t room)>;

// Forward passes of [first, end), whose last output is kept.
void AppendForwards(int first, int end, std::vector<Operation>& operations);
// The same from stage 0 on, with a kWrite of the input of each of these stages.
void AppendWritingForwards(absl::Span<const int> written, int end,
                           std::vector<Operation>& operations);

// The schedule for stages [first, last] in which every part begins as `choose` says. Schedules in
// which all that is kept stays until its backward pass are of this form.
void AppendNested(int first, int last, int64_t room, Choose choose,
                  std::vector<Operation>& operations);

}  // namespace brigade::recompute::internal

#endif  // BRIGADE_RECOMPUTE_INTERNAL_NESTED_H_
