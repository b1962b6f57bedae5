#ifndef BRIGADE_PARALLEL_PLAN_MEMORY_H_
#define BRIGADE_PARALLEL_PLAN_MEMORY_H_

// How much memory a rank of a grid needs.

#include <cstdint>
#include <map>
#include <tuple>

#include "absl/status/statusor.h"
#include "brigade/parallel/plan/configuration.h"

namespace brigade::parallel {

// The activations of a block that a rank keeps for a micro-batch, in bytes: s b h (34 + 5 a s / h)
// for a GPT of 16 bits, with t tensor ranks s b h (10 + 24 / t + 5 a s / (h t)), all of it divided
// by t with sequence parallelism; kSelective, and fused attention, without the term of the square;
// kFull 2 s b h, the block's input. Context ranks divide s where it does not stand for the
// positions that are attended. Source: Korthikanti et al. 2022 (arXiv 2205.05198), sections 4, 5.
double ActivationsOfLayer(const Transformer& model, const GridShape& grid, int micro_batch,
                          Recomputation recomputation, const Execution& execution);

// Of a rank, in bytes.
struct MemoryUse {
  double weights = 0;
  double gradients = 0;
  double optimizer_state = 0;
  // Of ZeRO: buckets that are gathered or being reduced, scratch.
  double buffers = 0;
  double activations = 0;

  double total() const { return weights + gradients + optimizer_state + buffers + activations; }
};

// What ZeRO has to do on a stage of the pipeline.
struct ZeroUse {
  // Without activations; with what rounds between replicas need.
  MemoryUse memory = {};
  // The elements of all buckets with their padding, and how many buckets there are.
  double elements = 0;
  int64_t buckets = 0;
};

// The memory of grids for a model. What ZeRO needs is zero/plan's own: a plan is made of the
// stage's parameters, and MemoryOf (zero/plan/memory_model.h) asked, and of replicas that of
// replicas/round_plan.h. It remembers what it has been asked for.
//
// Threads      One at a time.
class MemoryModel {
 public:
  // The model and the execution are valid.
  MemoryModel(const Transformer& model, const Execution& execution)
      : model_(model), execution_(execution) {}

  // Of the first stage, or of the last one, of a valid configuration. In stages 0 and 1 of ZeRO
  // gradients of several micro-batches are added up and reduced once, as
  // zero::Accumulation::kAtBoundary, in stages 2 and 3 after each. Errors of zero::Plan::Create.
  absl::StatusOr<ZeroUse> ZeroOf(const Configuration& configuration, bool last_stage);

  // The activations of a stage: as many micro-batches as the schedule keeps at once
  // (PeakActivations); a block's working memory where all is recomputed; on the last stage the
  // logits, in fp32, and their input, of one micro-batch.
  double ActivationsOf(const Configuration& configuration, int stage) const;

  // Of the first or the last stage, the larger: what lies between keeps fewer micro-batches than
  // the first, and has no embedding.
  absl::StatusOr<MemoryUse> MemoryOf(const Configuration& configuration);

 private:
  const Transformer model_;
  const Execution execution_;
  // By tensor, pipeline, replicas, ranks and groups that share a state, layers, stage of ZeRO,
  // whether several micro-batches, last stage.
  std::map<std::tuple<int, int, int, int, int, int64_t, int, bool, bool>, ZeroUse> known_;
};

// How often a step gathers the weights of a stage of the pipeline in ZeRO's stage 3, on average
// over its parameters: without a pipeline each unit for each pass; else once for each run of passes
// of a chunk, which is the whole step where a stage has one chunk, or uses both by turns.
double WeightGathers(const PipelineShape& shape);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PLAN_MEMORY_H_
