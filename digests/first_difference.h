#ifndef BRIGADE_DIGESTS_FIRST_DIFFERENCE_H_
#define BRIGADE_DIGESTS_FIRST_DIFFERENCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/digests/digest_file.h"
#include "brigade/digests/tensor_map.h"

namespace brigade::digests {

// Where two trainings differ first: the first step that both files have whose digests differ, and
// in it what was made first. A backward pass makes gradients from the last unit to the first; an
// update makes weights of them.
struct Difference {
  int64_t step = 0;
  // The step before, of both files, that is alike; 0: none.
  int64_t alike = 0;
  // "gradients", "weights", or "skipped" where one of the two skips the step and the files have no
  // gradients that differ.
  std::string kind;
  // One of the two skips the step, for an overflow.
  bool one_skips = false;
  // By tensor; -1 for "skipped".
  int tensor = -1;
  // The names of all tensors that differ in this step, of this kind, the first one first.
  std::vector<std::string> tensors;
};

// None: all steps that both have are alike; `steps` is their number. InvalidArgument if the two are
// of other tensors, naming the first, or have no step in common.
struct Compared {
  int64_t steps = 0;
  // Steps between the first and the last one of these that one file alone has: of them nothing is
  // known.
  int64_t alone = 0;
  std::optional<Difference> difference;
};
absl::StatusOr<Compared> FirstDifference(const DigestLog& a, const DigestLog& b);

// An element that differs.
struct ElementDifference {
  int64_t element = 0;
  // Its indices in the tensor.
  std::vector<int64_t> at;
  // The bits, and the values, of both sides.
  uint32_t bits[2] = {0, 0};
  double values[2] = {0, 0};
};

struct TensorDifference {
  // Of both dumps.
  std::string paths[2];
  int64_t differing = 0;
  // The largest |a - b| of them; NaN if one is.
  double largest = 0;
  // The first ones.
  std::vector<ElementDifference> first;
};

// Of dumps of both trainings (TensorDump): `most` of the elements that differ. Errors of
// ReadDumped; InvalidArgument if the two have other types; FailedPrecondition, naming the side, if
// a dump has not the digest that the log has of that step: it is of another one.
absl::StatusOr<TensorDifference> CompareDumps(const Difference& difference,
                                              const DigestLog (&logs)[2],
                                              const std::string (&folders)[2], int most);

}  // namespace brigade::digests

#endif  // BRIGADE_DIGESTS_FIRST_DIFFERENCE_H_
