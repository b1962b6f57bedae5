#ifndef BRIGADE_TESTS_RECOMPUTE_SIMULATOR_H_
#define BRIGADE_TESTS_RECOMPUTE_SIMULATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/operation.h"

namespace brigade::recompute {

struct Simulation {
  // Of the chain's sizes as they are, not rounded up.
  int64_t peak_bytes = 0;
  double time = 0;
  // kForward, kForwardKeep and kForwardSave.
  int forwards = 0;
  int writes = 0;
  int reads = 0;
  // The most inputs of stages that are kept at a time, the chain's until it is written among them.
  int most_kept = 0;
};

// Runs operations on an explicit memory, as operation.h says: those of a plan, or, with fetches,
// those of a schedule. FailedPrecondition naming the
// operation where it reads what is not there, frees what does not lie on top of the stack, puts
// two values on the same end, or leaves something over at the end.
absl::StatusOr<Simulation> Simulate(const Chain& chain, absl::Span<const Operation> operations);

// The operations, one a line.
std::string Text(absl::Span<const Operation> operations);

}  // namespace brigade::recompute

#endif  // BRIGADE_TESTS_RECOMPUTE_SIMULATOR_H_
