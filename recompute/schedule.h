#ifndef BRIGADE_RECOMPUTE_SCHEDULE_H_
#define BRIGADE_RECOMPUTE_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/operation.h"
#include "brigade/recompute/planner.h"

namespace brigade::recompute {

// Where a schedule has what is in memory, as bytes from its begin.
enum class Placement : uint8_t {
  // In one arena: the least memory for a forward pass that its backward pass follows.
  kArena,
  // In two regions, where forward passes over several inputs come before the backward pass over the
  // first one: what is there between the two passes, of which there is a copy for each input, and
  // behind it what is there during a pass alone, of which one copy is enough.
  kSlots,
  // The same for a backward pass that is split: a third region behind them has, from the gradients
  // of inputs to those of weights, what the former leaves, and of what it has saved itself what the
  // latter read.
  kSplitSlots,
};

// Where an operation finds what it reads, and has what it writes: bytes from the schedule's begin,
// multiples of kAlignmentBytes; or kElsewhere.
struct PlacedOperation {
  // It is in no region (the chain's input), or the operation has none.
  static constexpr int64_t kElsewhere = -1;
  static constexpr int kNone = -1;

  Operation operation;
  // The stage's input: of all but kDrop. Of kFetch and kRead, where it is read to.
  int64_t input = kElsewhere;
  // The stage's output, of forward passes. That of kForwardSave is where its saved set begins.
  int64_t output = kElsewhere;
  // What kForwardSave saves and kBackward reads: SaveOption::saved_bytes.
  int64_t saved = kElsewhere;
  // The transient bytes of the stage or of its option.
  int64_t transient = kElsewhere;
  // With Placement::kSplitSlots: SaveOption::deferred_bytes, of kBackward; and weight_input_bytes
  // of what is saved in the backward pass, where `saved` has the other bytes alone.
  int64_t deferred = kElsewhere;
  int64_t weight_inputs = kElsewhere;
  // This operation writes over what the kWrite of this stage copies, which has to have ended;
  // kNone: over nothing that is being copied. (Of kFetch too: unless copies are made one after the
  // other.)
  int after_write = kNone;

  bool operator==(const PlacedOperation&) const = default;
};

// A plan with a place for everything: what a model carries out, one operation after the other. The
// gradient, which each kBackward reads and replaces, has a place of its own outside the arena.
struct Schedule {
  std::vector<PlacedOperation> operations = {};
  // The regions, in this order. With Placement::kArena all is in the arena.
  int64_t kept_bytes = 0;
  int64_t arena_bytes = 0;
  int64_t deferred_bytes = 0;
  // From here on it is the backward pass: what comes before ends with the last stage's output.
  size_t first_of_backward = 0;
  // For each stage, the bytes of its input if it is written to the slower tier, else 0.
  std::vector<int64_t> written_bytes = {};

  // What goes to the slower tier in a forward pass, and comes back in a backward pass.
  int64_t WrittenBytes() const;

  // The stages in the order in which the backward pass uses their weights: consecutive operations
  // of one stage are one use (ZeroOptions::backward_units).
  std::vector<int> BackwardUses() const;
  // How often forward passes of the whole schedule are made of a stage.
  int Forwards(int stage) const;
};

// Places the plan's operations on a stack at the arena's begin, what passes there and at its end by
// turns, and checks each one: everything that is read is there, nothing is written over, everything
// is freed once. Of a plan on two tiers the kFetch are added, each read has one of two places
// beyond the arena's far end, and who writes over something that is still being copied has to await
// that: copies of the same two passes, for in slots others come between them.
//
// In slots there are two stacks: the forward pass keeps and saves in the first region, the backward
// pass in the arena. In the third region nothing becomes free before the gradients of weights.
//
// Memory       With Placement::kArena arena_bytes and the largest gradient are the plan's
//              peak_bytes where all gradients are of one size.
// Errors       Those of Validate (chain.h). InvalidArgument naming the operation and what is wrong
//              with it.
absl::StatusOr<Schedule> Place(const Chain& chain, const Plan& plan,
                               Placement placement = Placement::kArena);

}  // namespace brigade::recompute

#endif  // BRIGADE_RECOMPUTE_SCHEDULE_H_
