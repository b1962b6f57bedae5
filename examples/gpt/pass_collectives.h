#ifndef BRIGADE_EXAMPLES_GPT_PASS_COLLECTIVES_H_
#define BRIGADE_EXAMPLES_GPT_PASS_COLLECTIVES_H_

#include <vector>

#include "brigade/collectives/communicator.h"
#include "brigade/examples/gpt/part_plan.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/parallel/pass_collective.h"
#include "brigade/parallel/tensor/cross_entropy.h"
#include "brigade/parallel/tensor/row_gradients.h"
#include "brigade/parallel/tensor/shard_sums.h"

namespace brigade::gpt {

// The groups of ranks that share the model's tensor shards, and texts. Null stands for a rank
// alone. They outlive who is given them.
struct PassGroups {
  collectives::Communicator* tensor = nullptr;
  collectives::Communicator* context = nullptr;
};

// What the passes of all of a part's chunks over a micro-batch exchange by this plan. A backward
// pass that is split gathers the gradients of a block's row products for each half. Nothing for a
// rank alone.
std::vector<parallel::PassCollective> CollectivesOfPasses(const PassShape& shape,
                                                          const PartPlan& plan);

// The layers' options for these passes.
parallel::ShardSumOptions SumOptions(const PassShape& shape);
parallel::VocabularyCrossEntropyOptions CrossEntropyOptions(const PassShape& shape);
// Elements of the largest sum: norms' weights and biases and the two biases of a block.
parallel::RowGradientOptions RowGradientOptionsOf(const PassShape& shape);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_PASS_COLLECTIVES_H_
