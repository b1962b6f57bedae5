#ifndef BRIGADE_PARALLEL_PLAN_COST_H_
#define BRIGADE_PARALLEL_PLAN_COST_H_

// How long a step takes.

#include "absl/status/statusor.h"
#include "brigade/parallel/plan/configuration.h"
#include "brigade/parallel/plan/group_cost.h"
#include "brigade/parallel/plan/machine.h"
#include "brigade/parallel/plan/memory.h"

namespace brigade::parallel {

// The seconds of a step, one after the other.
struct StepTime {
  // Passes of the stage that takes longest, recomputation with them.
  double compute = 0;
  // What its products wait for: sums and gathers over tensor ranks, keys and values of other
  // context ranks.
  double tensor = 0;
  double context = 0;
  // Transfers between stages that nothing hides.
  double transfer = 0;
  double bubble = 0;
  // Gradients and weights over data and context ranks that no pass hides, the sum of tied weights,
  // the statistics.
  double data = 0;
  // The check of the gradients and the update.
  double optimizer = 0;
  // A step's part of a round between replicas: its sums, the update, and weights that are gathered
  // once more.
  double round = 0;

  double total() const {
    return compute + tensor + context + transfer + bubble + data + optimizer + round;
  }
};

// What a pass over some of the model takes for one micro-batch.
struct PassTime {
  double compute = 0;
  double tensor = 0;
  double context = 0;

  double total() const { return compute + tensor + context; }
  PassTime& operator+=(const PassTime& other);
};
PassTime operator*(double count, const PassTime& pass);

// Backward passes in two parts: gradients of inputs (with what is made again before), of weights.
struct PassTimes {
  PassTime forward = {};
  PassTime backward_input = {};
  PassTime backward_weight = {};
};

// Predicts steps of a model on a machine. Nothing in it is adjusted to a case: operations by
// ProductSeconds and MemorySeconds (machine.h), communication by GroupCosts.
//
// A block: its products; norms, activation and residuals, each operand once through memory (half as
// much again backward); attention. Tensor ranks: two sums forward, two backward, and where all is
// recomputed the first two again; with sequence parallelism a gather and a reduce-scatter for each,
// and two gathers more. Context ranks: a ring whose hops are hidden behind attention's blocks as
// far as these last, or all-to-alls that nothing hides.
// Pipeline: m times the stage that takes longest, the bubble for stages of the mean, and transfers
// (pipeline_time.h).
// Data: what is longer than the passes that it can run beside, at least one bucket's; gathers after
// the update are not hidden. Bytes as zero/plan/traffic.h counts them, padding included. Sums of
// slices between groups that have a whole state each run beside the last backward pass.
// Replicas: rounds that nothing hides, a period's steps apart.
//
// Left out: launches, the host, stragglers, contention of groups of different kinds.
//
// Threads      One at a time.
class CostModel {
 public:
  // All are valid, and outlive the object.
  CostModel(const Transformer& model, const Machine& machine, const Execution& execution)
      : model_(model), machine_(machine), execution_(execution), groups_(machine) {}

  // Of one block, and of the logits with the loss.
  PassTimes TimesOfLayer(const Configuration& configuration);
  PassTimes TimesOfHead(const Configuration& configuration);

  // Of a valid configuration, and what ZeRO has to do in its last stage (MemoryModel::ZeroOf).
  StepTime TimeOf(const Configuration& configuration, const ZeroUse& zero);

 private:
  PassTime AttentionForward(const Configuration& configuration) const;
  // Between ranks of the tensor group: the whole forward or backward pass of a block.
  double TensorSeconds(const Configuration& configuration, bool backward);
  // Keys and values round the ring, or heads by all-to-alls, beside attention of so many seconds.
  double ContextSeconds(const Configuration& configuration, bool backward, double attention);
  double TransferSeconds(const Configuration& configuration);
  double DataSeconds(const Configuration& configuration, const ZeroUse& zero, double forward,
                     double backward);
  double RoundSeconds(const Configuration& configuration, const ZeroUse& zero);

  const Transformer& model_;
  const Machine& machine_;
  const Execution& execution_;
  GroupCosts groups_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PLAN_COST_H_
