#ifndef BRIGADE_RECOMPUTE_REVOLVE_H_
#define BRIGADE_RECOMPUTE_REVOLVE_H_

// Schedules for a chain of equal steps, of which a number of states fits into memory: segments of
// equal blocks whose inputs are stashed on the host or in files. Where sizes differ, or saved sets
// share the memory with states, PlanBudget (planner.h) is the one to ask; within one tier and for
// equal steps it finds the same numbers.
//
// Both count forward steps beside the recording ones: each step is recorded (kForwardSave, option
// 0) just before its backward pass, `steps` times in all. `checkpoints` states fit into memory, the
// input of the first step, or of a part that is read back, among them; beside them the state that
// is passing, or that is the input of the step being recorded.

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/recompute/operation.h"

namespace brigade::recompute {

// The least forward steps for one tier: t(1, c) = 0, t(l, 1) = l (l - 1) / 2,
// t(l, c) = min over 0 < j < l of j + t(l - j, c - 1) + t(j, c), which is r l - C(c + r, r - 1) for
// the least r with C(c + r, c) >= l.
//
// Errors  InvalidArgument unless 1 <= steps <= kMaxStages (chain.h) and checkpoints >= 1.
// Source  Griewank and Walther 2000, Revolve (ACM TOMS algorithm 799).
absl::StatusOr<int64_t> RevolveForwardSteps(int steps, int checkpoints);

// A schedule with that many forward steps. Of equal counts it takes the least j. Errors of
// RevolveForwardSteps.
absl::StatusOr<std::vector<Operation>> Revolve(int steps, int checkpoints);

// What to write and to read back one state costs, in forward steps.
struct TierCosts {
  double write = 0;
  double read = 0;
};

struct DiskRevolveSchedule {
  std::vector<Operation> operations = {};
  // Forward steps beside the recording ones, and the costs of what is written and read.
  double cost = 0;
};

// The least cost with a second tier of any size, each of whose states is read once:
// D(1) = 0, D(l) = min(t(l, c), min over 0 < j < l of write + j + D(l - j) + read + t(j, c)). The
// written states are the inputs of the parts, each of j steps, from the first on; that of the last
// part stays in memory. Of equal costs it takes t(l, c), then the least j.
//
// Errors  Those of RevolveForwardSteps; InvalidArgument unless the costs are finite and not
//         negative.
// Source  Aupy, Herrmann, Hovland, Robert 2016: Optimal multistage algorithm for adjoint
//         computation, whose schedules may read a state more than once.
absl::StatusOr<DiskRevolveSchedule> DiskRevolve(int steps, int checkpoints, TierCosts costs);

}  // namespace brigade::recompute

#endif  // BRIGADE_RECOMPUTE_REVOLVE_H_
