#ifndef BRIGADE_RECOMPUTE_CHAIN_H_
#define BRIGADE_RECOMPUTE_CHAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace brigade::recompute {

// Every size counts rounded up to a multiple of this, at which an arena, and a stash, place what
// they hold: device memory begins at such addresses.
inline constexpr int64_t kAlignmentBytes = 256;
// `bytes` rounded up, 0 or more.
inline constexpr int64_t AlignedBytes(int64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

// What a forward pass of a stage may keep for the stage's backward pass. The more it keeps, the
// less its backward pass has to compute again.
struct SaveOption {
  std::string name = {};
  // Bytes of what is kept, the stage's output among them: the next stage's backward pass reads it.
  // The stage's input is not among them.
  int64_t saved_bytes = 0;
  // Bytes that the forward pass needs beside its input and what it saves.
  int64_t forward_transient_bytes = 0;
  // Bytes that the backward pass needs beside the stage's input, what is saved and the gradient of
  // the output: gradients of its own, what it computes again, and the gradient of the input unless
  // that is written over one of these.
  int64_t backward_transient_bytes = 0;
  // Of the backward pass, with what it computes again.
  double backward_time = 0;
  // Where the backward pass is split into gradients of inputs and of weights: bytes that the former
  // leaves to the latter, beside what is saved. backward_transient_bytes are then of either.
  int64_t deferred_bytes = 0;
  // Of saved_bytes, those that gradients of weights read.
  int64_t weight_input_bytes = 0;
};

// One step of a chain: its input is the output of the stage before.
struct Stage {
  std::string name = {};
  // Of its forward pass, whatever it keeps.
  double forward_time = 0;
  int64_t output_bytes = 0;
  // Bytes of the gradient of its output.
  int64_t gradient_bytes = 0;
  // Bytes that a forward pass that saves nothing needs beside its input and its output.
  int64_t transient_bytes = 0;
  // One at least.
  std::vector<SaveOption> options = {};
  // Stands, as the last stage, for what follows the chain elsewhere: no bytes, no time. Other work
  // comes between the forward and the backward pass, so a policy that makes segments again makes
  // all of the chain's again, where else the last one goes backward at once.
  bool is_elsewhere = false;
};

// A computation whose backward pass goes through the same stages in reverse: for each stage of a
// model times and sizes, which are all that a planner has to know of it.
//
// Units        Bytes; times in any unit, the same for all (seconds, or flops).
// Memory       What the planner counts: outputs, saved sets, transient bytes, and the one gradient
//              that exists at a time, from the beginning, when it is that of the last output. The
//              chain's input and its gradient belong to the caller and are not counted. Where
//              gradients have a fixed place, all stages have the gradient_bytes of that place, or
//              all 0, and the budget is that of the rest.
// Source       Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: Optimal checkpointing for
//              heterogeneous chains (arXiv 1911.13214), where a stage has one option; several:
//              Zhao, Le Hellard, Eyraud-Dubois, Gusak, Beaumont: Rockmate (arXiv 2307.01236).
struct Chain {
  std::vector<Stage> stages = {};
};

// The sizes of a chain add up to at most this.
inline constexpr int64_t kMaxChainBytes = int64_t{1} << 60;
// A planner's time grows with the third power of the stages.
inline constexpr int kMaxStages = 1024;

// InvalidArgument naming the stage, the option and the field, where a chain has no stages or more
// than kMaxStages, a stage has no options, a size is negative, a time is negative or not finite,
// saved_bytes are less than output_bytes or than weight_input_bytes, the gradient of a stage's
// input has no room among what its backward pass has (saved_bytes, gradient_bytes and
// backward_transient_bytes), all sizes together are more than kMaxChainBytes, or a stage that is
// elsewhere is not the last one behind others, or has bytes, time or several options.
absl::Status Validate(const Chain& chain);

}  // namespace brigade::recompute

#endif  // BRIGADE_RECOMPUTE_CHAIN_H_
