#ifndef BRIGADE_ZERO_OPTIONS_H_
#define BRIGADE_ZERO_OPTIONS_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "brigade/collectives/options.h"
#include "brigade/kernels/block_quant/block_quant_math.h"
#include "brigade/optim/loss_scaler.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/offload.h"

namespace brigade::collectives {
class Communicator;
}

namespace brigade::zero {

// What a rank keeps whole in a stage; of the rest it keeps its slices. Everything else is the same
// code in all stages. Source: Rajbhandari et al. 2020 (arXiv 1910.02054).
struct StageTraits {
  // Master and moments; every rank then updates everything, from gathered gradients.
  bool whole_optimizer_state;
  // Otherwise the memory of a bucket is reused once the bucket is reduced.
  bool whole_gradients;
  // Otherwise weights are gathered for each use.
  bool whole_parameters;
};

inline constexpr int kStages = 4;
inline constexpr StageTraits kStageTraits[kStages] = {
    {true, true, true}, {false, true, true}, {false, false, true}, {false, false, false}};

// When the gradients of several micro-batches are reduced. The two round differently.
enum class Accumulation : uint8_t {
  // Any stage: reduced after each micro-batch; each rank adds up its slices.
  kEveryMicroBatch,
  // Stages 0 and 1: added up on each rank and reduced once, in the accumulator's type.
  kAtBoundary,
};

// How the gradients of all ranks become their mean in fewer bytes, with error feedback: what a
// message leaves out enters the next one.
enum class GradientCompression : uint8_t {
  // Signs with a scale for each bucket (collectives/compressed/one_bit_all_reduce.h).
  kOneBit,
  // Factors of a low rank of each parameter that is a matrix (power_sgd_all_reduce.h). Rows are the
  // first dimension of ParameterSpec::shape, columns the product of the others. Vectors, and
  // matrices of which factors would be more than half, cross as they are.
  kPowerSgd,
  // The greatest elements of each bucket (top_k_all_reduce.h).
  kTopK,
};
inline constexpr GradientCompression kGradientCompressions[] = {
    GradientCompression::kOneBit, GradientCompression::kPowerSgd, GradientCompression::kTopK};

// "one_bit", "power_sgd", "top_k".
constexpr const char* Name(GradientCompression method) {
  switch (method) {
    case GradientCompression::kOneBit:
      return "one_bit";
    case GradientCompression::kPowerSgd:
      return "power_sgd";
    case GradientCompression::kTopK:
      return "top_k";
  }
  return "unknown";
}

// Stages 0 to 2. Each rank keeps its own gradients whole until Step. There it checks them, all
// decide, and bucket by bucket the ranks exchange what unscaled and clipped gradients in fp32 have
// become; the update reads that. Padding takes no part.
//
// With ZeroOptions::shard_ranks and several groups, in all stages: a group sums its ranks'
// gradients as it does without, and in Step groups exchange these sums, of each slice the ranks
// that have it. Matrices of kPowerSgd are then the whole rows in a slice, and rows that it cuts
// cross as they are. Below, "ranks" are groups then, and a rank's own gradients its slice of the
// group's; but for local steps of ZeroOneAdam, which groups do not have.
//
// The norm that is clipped, and that the step state has, is the root of the mean over ranks of the
// squared norms of their own gradients, for it is known before the exchange. It is at least the
// norm of the mean, and at most sqrt(ranks) times that.
//
// The optimizers OneBitAdam and OneBitLamb have exchanges of their own from
// OptimizerOptions::freeze_step on, in the same way: each rank adds its own gradient to the first
// moment that all have, beta1 m + (1 - beta1) g, and the mean of these is the new first moment, by
// which the update goes. A rank alone takes its own. Where the second moment is 0 then, an element
// has never had a gradient, and never moves again but by its decay (optim/freeze_moment.h). With
// OneBitLamb what is sent of a tensor is multiplied by a scale of its own, which brings all tensors
// to one size, and divided by it behind the exchange (kernels/one_bit_lamb); it needs tensors of no
// element, or three and more.
//
// The optimizer ZeroOneAdam (optim/zero_one_schedule.h) reduces gradients in the steps that update
// second moments, at the boundary where there are several micro-batches. In the others ranks
// exchange their gradients, second moments stay, and where these are 0 so does the element but for
// its decay. From var_freeze_step on second moments stay as above, errors begin with zero, and what
// ranks exchange in a meeting is the sum, over the steps since the last one, of the rate times the
// first moment. From the weights of the last meeting these take one step of AdamW, by that sum
// divided by the sum of the rates, which is the new first moment of all ranks. In the steps between
// meetings, of stage 0 alone, ranks have weights and first moments of their own, and send the
// statistics of the step.
struct CompressionOptions {
  GradientCompression method = GradientCompression::kOneBit;
  // Steps tried before are reduced as without it, at the boundary where there are several
  // micro-batches. A run's first steps tell the moments of the optimizer what exact gradients are.
  int64_t start_step = 0;
  // Of kPowerSgd: the columns of factors, 1 to kernels::kMaxLowRank.
  int32_t rank = 4;
  // Of kPowerSgd: how often the factors of a step are made and exchanged, 1 to
  // collectives::kMostPowerIterations. More keep more of the gradients.
  int32_t iterations = 1;
  // Of kTopK: the share of a bucket's elements that each rank sends, more than 0 and at most 1;
  // rounded up to whole elements.
  double density = 0.01;
};

// Error feedback of gradients that are summed as codes: LoCo (kernels/loco_quant).
struct LocoOptions {
  // Of the errors before a message in those behind it, from 0 to below 1.
  double err_beta = 0.8;
  // Each step whose number, from 0 on and skipped ones included, is a multiple of it forgets them:
  // int8 codes have rounded them once a message.
  int64_t reset_steps = 1024;
};

struct ZeroOptions {
  int stage = 1;
  // Of working weights and gradients whose ParameterSpec names no type: float16, bfloat16, or
  // float32 (then the weights are the master).
  precision::DType dtype = precision::DType::kBFloat16;

  optim::OptimizerOptions optimizer = {};
  optim::LossScaler loss_scaler = {};
  // The norm over all ranks of the world to which gradients are clipped; infinity: no clipping.
  double max_grad_norm = std::numeric_limits<double>::infinity();
  // The ranks that hold one copy of the model between them (tensor and pipeline parallelism), each
  // in a group of ZeRO's of its own. The norm and whether a step overflows are then of all groups:
  // ZeroOptimizer::Create takes the communicator of the world. 1: the group is the world.
  int model_ranks = 1;
  // The ranks that share a state, where these are not all that have the same weights (HSDP, MiCS):
  // groups of so many have a whole state each, and ZeroOptimizer::Create takes the ranks between
  // them. Weights are gathered, and the gradients of each micro-batch summed, inside a group. The
  // slices are summed between the groups once a step, behind the last micro-batch, or exchanged
  // (gradient_compression, moments) in Step. 0: one group.
  int shard_ranks = 0;
  // Stage 3: so many of the ranks that share a state, one after another, have second slices of all
  // weights between them (hpZ of ZeRO++). A forward gather leaves them; the backward gathers of the
  // same step take them, and go to these ranks alone (OuterGroups::near). A second slice carries
  // the number of the update before it: once weights have changed, they are gathered anew. The same
  // bits. 0: there are none.
  int hpz_ranks = 0;
  // Whether gradients are the average over the ranks of all groups that have the same weights and
  // over micro-batches, or the sum.
  bool average_gradients = true;

  int micro_batches = 1;
  Accumulation accumulation = Accumulation::kEveryMicroBatch;
  // The type of the sum over several micro-batches.
  precision::DType accumulator = precision::DType::kFloat32;

  // The type in which gradients cross the wire: float16, bfloat16 or float32; none: their own. Each
  // rank rounds its gradients (kAtBoundary: its sums over micro-batches) to this type, and the sum
  // over ranks is formed in it; the result is rounded to the type of the gradients, or, over
  // several micro-batches, added to the accumulator. The same bits in every stage: spec/wire.h.
  // Gradients of another type that cross in float16 are scaled, each bucket by a power of two that
  // the ranks choose for its largest value (collectives/compressed): nothing overflows on the wire,
  // and what is more than about ranks * 2^-28 of that value keeps float16's digits. Infinities and
  // NaN cross as such, and the step is skipped. bfloat16 has fp32's range and needs no scale;
  // float16 gradients have the loss scale. Weights are not affected.
  std::optional<precision::DType> communication_dtype = {};

  // Weights of 16 bits cross the wire of gathers as int8 or int4 codes of blocks of 256 (qwZ of
  // ZeRO++; collectives/compressed). All ranks use what codes keep of them, a rank of its own slice
  // too, from the first step on and behind a load: the same bits in stages 1 to 3. Updates go on
  // from the master. Weights of fp32 cross as they are. None: all do.
  std::optional<kernels::QuantFormat> quantized_weights = {};
  // The same of weights that are not trained: stage 3, which alone gathers them.
  std::optional<kernels::QuantFormat> quantized_frozen_weights = {};
  // Gradients, or sums over micro-batches, are summed inside a group as codes (qgZ of ZeRO++): what
  // codes keep of each rank's is added in fp32 in the order of ranks, and rounded once to the type
  // that they have there, the same bits in every stage. A block that is not finite skips the step.
  // communication_dtype is then that of sums between groups alone. None: as they are.
  std::optional<kernels::QuantFormat> quantized_gradients = {};
  // Of quantized_gradients, and of exchanges of signs (gradient_compression kOneBit, the moments of
  // OneBitAdam and OneBitLamb, all of ZeroOneAdam): so many of the ranks that share a state, one
  // after another, are a node, and the sum goes in two hops, inside nodes and as codes of these
  // sums between them (OuterGroups::node and nodes). Where signs are sent, those inside nodes are
  // in fp32. 0, 1 and all: one hop.
  int node_ranks = 0;
  // Of quantized_gradients: what codes leave out of a gradient enters the next ones, of which each
  // rank keeps 1.02 bytes an element of all gradients, in two hops 1.02 / node_ranks more, and once
  // again as they were before the step. A step that is skipped keeps every bit of them. They have
  // the loss scale of the gradients that left them, and follow it where it changes, exactly where
  // scales are powers of two. They are a part of the state (ZeroOptimizer::ShareErrors), and begin
  // with zero behind InitializeParameters and CancelStep. None: it is lost.
  std::optional<LocoOptions> loco = {};

  // None: gradients are reduced as they are. A rank alone exchanges nothing.
  std::optional<CompressionOptions> gradient_compression = {};

  int64_t bucket_elements = int64_t{16} << 20;
  // Communication on a stream of its own, beside compute. Same bits either way.
  bool overlap_comm = true;
  // The number of consecutive units in memory at once where not all are: the unit in use, and those
  // gathered ahead or still being reduced.
  int live_units = 2;
  // The units in the order in which the backward pass acquires them; empty: each once, in reverse
  // order. Longer where the backward pass makes activations again by forward passes of its own: all
  // of it is Pass::kBackward. The last use of each unit, where its gradients are made, comes in
  // reverse order. In stage 3 every use is a gather.
  std::vector<int> backward_units = {};
  // Of a stage of a pipeline: the first unit of each chunk, ascending, beginning with 0; empty: one
  // chunk with all units. Each chunk counts its micro-batches itself, so that its gradients come
  // whenever the schedule has them, also between those of another chunk's micro-batch.
  std::vector<int> chunks = {};
  // The chunks in the order of a step's runs: passes of one chunk that come one after another,
  // forward and backward, of any micro-batches (ZeroOptimizer::BeginRun). Stage 3 gathers a run's
  // weights once, and those of the next run ahead. Every chunk has a run, and no run is followed by
  // one of the same chunk. Empty: no runs.
  std::vector<int> runs = {};
  // Whether each unit that uses a tied parameter has memory of its own for its part of the
  // gradient. Each part is then summed over micro-batches and ranks by itself, and in Step the
  // parts are added in the type of the final gradient: to that of the unit that owns the parameter
  // those of the others, ascending, each sum in fp32 and rounded to the type. A unit adds nothing
  // to what another has written, which gives the same bits wherever the units are: on two stages of
  // a pipeline (ParameterSpec::tied_outside), too, if one of them has a single unit of these, and
  // that is the last one. False: later users add to the gradient in memory, in each micro-batch,
  // and the sum of all users' parts is rounded in the type of the parameter.
  bool tied_apart = false;
  // Stage 3: units of at most so many elements stay in memory and are gathered once a step.
  int64_t persistence_threshold = 0;

  OffloadOptions offload = {};

  // Of sums of gradients, and of all collectives that have a choice. kDoubleTree and
  // kParameterServer have all-reduces alone: gradients are then summed by these, in every stage,
  // and gathers are kAuto.
  collectives::Reduction reduction = collectives::Reduction::kRoundedOnce;
  collectives::Algorithm algorithm = collectives::Algorithm::kAuto;

  const StageTraits& traits() const { return kStageTraits[stage]; }
  // Whether gradients are added up in memory of their own.
  bool accumulates() const { return micro_batches > 1; }
  // Whether Step exchanges gradients, or moments, from some step on.
  bool exchanges() const { return gradient_compression.has_value() || averages_moments(); }
  bool is_zero_one_adam() const { return optimizer.kind == optim::OptimizerKind::kZeroOneAdam; }
  // Whether there are steps in which each rank updates weights of its own.
  bool has_local_steps() const {
    return is_zero_one_adam() && optimizer.zero_one.local_step_clipper > 1;
  }
  // Whether what is exchanged are first moments: of 1-bit Adam, 1-bit LAMB, and 0/1 Adam, from a
  // step on.
  bool averages_moments() const { return optim::AveragesMoments(optimizer.kind); }
  // Whether signs are what is sent in exchanges.
  bool exchanges_signs() const {
    return averages_moments() || (gradient_compression.has_value() &&
                                  gradient_compression->method == GradientCompression::kOneBit);
  }
  // The steps tried before. Of options that have exchanges, but not of 0/1 Adam.
  int64_t exchanges_from() const {
    return averages_moments() ? optimizer.freeze_step : gradient_compression->start_step;
  }
};

// The groups in which a step has collectives.
enum class StepGroup : uint8_t {
  // The ranks that share a state: ZeRO's own.
  kShards,
  // The ranks that have the same slices, one of each group that shares a state.
  kBetween,
  // All ranks of the model.
  kWorld,
  // Two ranks whose groups have the same tied parameters.
  kTied,
  // The ranks that have second slices of all weights between them.
  kNear,
  // Of the ranks that share a state those of this one's node, and those that have its place in each
  // node.
  kNode,
  kNodes,
};
inline constexpr StepGroup kStepGroups[] = {
    StepGroup::kShards, StepGroup::kBetween, StepGroup::kWorld, StepGroup::kTied,
    StepGroup::kNear,   StepGroup::kNode,    StepGroup::kNodes};

// The communicators beside that of ZeRO's own group; they outlive the optimizer.
struct OuterGroups {
  // With ZeroOptions::model_ranks or shard_ranks the ranks of all groups. Null: the group is the
  // world.
  collectives::Communicator* world = nullptr;
  // With ParameterSpec::tied_outside this rank and the one that has its place in the other group;
  // without, null.
  collectives::Communicator* tied = nullptr;
  // With ZeroOptions::shard_ranks the ranks that have this one's place in each group, in the order
  // of the groups (ShardGroups makes it). Null: there is one group.
  collectives::Communicator* between = nullptr;
  // With ZeroOptions::hpz_ranks so many ranks of this one's group that follow each other.
  collectives::Communicator* near = nullptr;
  // With ZeroOptions::node_ranks, of this one's group, those of its node, and those that have its
  // place in each node.
  collectives::Communicator* node = nullptr;
  collectives::Communicator* nodes = nullptr;
};

// InvalidArgument naming the option, its value, and what it contradicts.
absl::Status Validate(const ZeroOptions& options);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_OPTIONS_H_
