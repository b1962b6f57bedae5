#ifndef BRIGADE_RECOMPUTE_OPERATION_H_
#define BRIGADE_RECOMPUTE_OPERATION_H_

#include <string>

#include "brigade/device/requirements.h"

namespace brigade::recompute {

enum class Action {
  // A forward pass of the stage that saves nothing. Its output passes: it is there for the
  // operation that follows alone.
  kForward,
  // The same, and its output, the next stage's input, is kept until its kDrop.
  kForwardKeep,
  // A forward pass of the stage that saves option `option`, which holds the output as well. Its
  // input is kept, saved or the chain's input.
  kForwardSave,
  // The stage's backward pass. Reads the stage's input, what kForwardSave saved of this stage,
  // which is free then, and the gradient of the output; writes that of the input.
  kBackward,
  // The stage's kept input is free.
  kDrop,
  // Only in schedules on two tiers (PlanStashed, DiskRevolve). The stage's input, which passes or
  // is the chain's input, is written to the slower tier.
  kWrite,
  // The stage's input is read from the slower tier, and kept until its kDrop.
  kRead,
  // Only in schedules with places (schedule.h): what the stage's kRead reads is on its way from
  // here on, and beside the operations up to that kRead.
  kFetch,
};

// Whether the action computes: with the stage's weights, that is.
constexpr bool Computes(Action action) {
  return action == Action::kForward || action == Action::kForwardKeep ||
         action == Action::kForwardSave || action == Action::kBackward;
}

// One step of a schedule, a sequence that computes the gradients of a chain. Whoever runs it needs
// no other knowledge of how it was found:
//
//   - The input of stage s is where the output of stage s - 1 was written last, be it passing, kept
//   or in a saved set; that of stage 0 is the chain's input. - What passes is read by the operation
//   that follows it, a kForward or kForwardKeep of the next stage, and is free after that. (A
//   kWrite between the two reads it too.) - What is kept or saved is freed in reverse order. So it
//   can lie on a stack at one end of an arena; what passes lies on top of the stack and at the
//   arena's other end by turns, as `far_end` says, such that a kept output finds the top of the
//   stack free; transient bytes lie between. Then nothing is ever moved and there are no holes:
//   where all gradients have one size, and a place of that size, an arena of the rest of the plan's
//   peak is enough. - What is read from the slower tier lies beyond the arena's far end, in two
//   places by turns: one for the state in use, one for the next. They take memory as long as there
//   is something in them. - kBackward comes once for each stage, in descending order; every
//   kForwardKeep and kRead has its kDrop, every kForwardSave its kBackward, every kWrite its one
//   kRead, after the first kBackward.
struct Operation {
  Action action = Action::kForward;
  // From 0.
  int stage = 0;
  // Of kForwardSave and kBackward: index into Stage::options.
  int option = 0;
  // Of kForward: its output lies at the arena's far end, not on top of the stack.
  bool far_end = false;

  bool operator==(const Operation&) const = default;
};

// "forward 2", "forward 2 far", "keep 2", "save 2 option 1", "backward 2 option 1", "drop 2",
// "write 2", "read 2", "fetch 2".
std::string ToString(const Operation& operation);

}  // namespace brigade::recompute

#endif  // BRIGADE_RECOMPUTE_OPERATION_H_
