#ifndef BRIGADE_EXAMPLES_GPT_ACTIVATIONS_H_
#define BRIGADE_EXAMPLES_GPT_ACTIVATIONS_H_

// The model as a chain of stages for planners of recomputation: the embedding, each block, the
// head; stage s is unit s of SpecOf. And what follows each other of it as a chain of its own.

#include <cstdint>

#include "absl/status/statusor.h"
#include "brigade/examples/gpt/block_layout.h"
#include "brigade/examples/gpt/model_part.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/recompute/chain.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/policy.h"

namespace brigade::gpt {

// Where the head has its arrays: in one piece, and, of the backward pass, in a transient one. Norm
// [rows, width], of which the mean and the inverse deviation have the own rows; logits of the
// rank's shards, and of several shards what their cross entropy leaves to its backward pass; dwidth
// of own rows.
struct HeadMemory {
  void *norm = nullptr, *mean = nullptr, *inverse = nullptr, *logits = nullptr, *softmax = nullptr;
  void* dwidth = nullptr;
};
HeadMemory PlaceHead(const PassShape& shape, char* saved, char* transient);
// Those of the norm, which a split backward pass defers.
inline constexpr int kHeadRowGradients = 2;

// Of a stage's passes that make nothing again.
struct StageTimes {
  double forward = 0;
  double backward = 0;
};
// Of the passes over a micro-batch, in any unit. All blocks are alike. Plain bytes: ranks tell each
// other of them.
struct PassCosts {
  StageTimes embedding = {}, block = {}, head = {};
  // Of a block's backward pass that makes again what BlockSaveOption may drop.
  double pointwise = 0, middle = 0, qkv = 0, expanded = 0, attention = 0;
};

// In operations: of products, and roughly of norms and GELU. trial.h measures seconds.
PassCosts CountOperations(const PassShape& shape);

// Sizes in bytes, times from `costs`. Blocks have kBlockSaveOptions. The one gradient, of the
// residual stream, is that of every stage.
recompute::Chain ActivationChain(const PassShape& shape, const PassCosts& costs);
// By operations.
recompute::Chain ActivationChain(const PassShape& shape);

// Of these stages alone. The input of the first and the output of the last are the caller's, who
// has the gradient of one in the place of the other's; only the whole model has a gradient of its
// own. Behind stages that do not end the model comes one that is elsewhere. `splits_backward`: into
// gradients of inputs and of weights.
recompute::Chain ActivationChain(const PassShape& shape, const PassCosts& costs,
                                 const StageRange& stages, bool splits_backward);

// The plan of a policy, from the chain's times: the same on every rank. InvalidArgument for a
// budget that is too small, naming the least.
absl::StatusOr<recompute::Plan> PlanOf(const recompute::Chain& chain,
                                       const recompute::Policy& policy);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_ACTIVATIONS_H_
