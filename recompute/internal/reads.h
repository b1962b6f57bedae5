#ifndef BRIGADE_RECOMPUTE_INTERNAL_READS_H_
#define BRIGADE_RECOMPUTE_INTERNAL_READS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "brigade/recompute/operation.h"

namespace brigade::recompute::internal {

// The operations with a kFetch for each kRead: the first one's just before the backward pass, each
// other one's behind the kRead before it. So what is read next is on its way while the part before
// it goes backward, and nothing else is.
std::vector<Operation> WithFetches(absl::Span<const Operation> operations);

// The two places at an arena's end for what is read from the slower tier, by turns. The first lies
// at the very end. Each has the size of the largest that comes there.
class ReadPlaces {
 public:
  // For operations with fetches, of inputs of stages with so many bytes.
  ReadPlaces(absl::Span<const Operation> operations,
             absl::FunctionRef<int64_t(int stage)> input_bytes);

  // The stage's input gets its place, from now on to the Drop. False: the place is in use.
  bool Fetch(int stage);
  // False: the stage's input has no place.
  bool Drop(int stage);
  // How far before the arena's end the place of the stage's input begins, if it has one.
  std::optional<int64_t> BeginBeforeEnd(int stage) const;
  // Of the arena's end, in use now.
  int64_t bytes() const;

 private:
  int64_t bytes_[2] = {};
  std::optional<int> stage_[2];
  int next_ = 0;
};

}  // namespace brigade::recompute::internal

#endif  // BRIGADE_RECOMPUTE_INTERNAL_READS_H_
