#include "brigade/train/codec_choice.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/measurement/measure.h"
#include "brigade/collectives/tuning/codec_cost.h"
#include "brigade/collectives/tuning/cost_model.h"
#include "brigade/collectives/tuning/select.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype.h"
#include "brigade/train/config/config_nodes.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::train {
namespace {

using collectives::Algorithm;
using collectives::Codec;
using collectives::CollectiveKind;
using collectives::Topology;
using precision::DType;

// Of a way that an exchange may go: the seconds of a step by the model, or why it does not exist.
struct Way {
  std::optional<double> seconds = {};
  std::string why_not = {};

  bool IsFasterThan(const Way& other) const {
    return seconds.has_value() && (!other.seconds.has_value() || *seconds < *other.seconds);
  }
};

Way Without(std::string why) { return {{}, std::move(why)}; }

// The exchanges of a step, among the ranks of a topology.
class StepCost {
 public:
  StepCost(const TrainConfig& config, Topology topology, const zero::Plan& plan)
      : config_(config), zero_(config.zero), topology_(std::move(topology)), plan_(plan) {}

  absl::StatusOr<double> PlainGradients() const;
  absl::StatusOr<double> CodesOfGradients() const;
  absl::StatusOr<double> Signs() const;
  // Of one gather of each bucket that is trained, or is not.
  absl::StatusOr<double> PlainWeights(bool trainable) const;
  absl::StatusOr<double> CodesOfWeights(bool trainable) const;

 private:
  absl::StatusOr<double> Plain(CollectiveKind operation, int64_t bytes) const;
  absl::StatusOr<double> Coded(Codec codec, CollectiveKind operation, int64_t elements,
                               DType dtype) const;
  // Reductions of each bucket in a step.
  int times() const { return zero::internal::ReducesOnce(plan_, zero_) ? 1 : zero_.micro_batches; }
  // The type in which gradients cross as they are.
  DType WireOf(const zero::Bucket& bucket) const {
    return zero_.communication_dtype.value_or(bucket.dtype);
  }
  static bool IsCoded(const zero::Bucket& bucket, bool trainable) {
    return bucket.trainable == trainable && precision::SizeOf(bucket.dtype) == 2;
  }

  const TrainConfig& config_;
  const zero::ZeroOptions& zero_;
  const Topology topology_;
  const zero::Plan& plan_;
};

absl::StatusOr<double> StepCost::Plain(CollectiveKind operation, int64_t bytes) const {
  const bool adds = operation != CollectiveKind::kAllGather;
  Algorithm algorithm = zero_.algorithm;
  // These have all-reduces alone, by which everything is summed.
  const bool sums_all =
      algorithm == Algorithm::kDoubleTree || algorithm == Algorithm::kParameterServer;
  if (sums_all && adds) operation = CollectiveKind::kAllReduce;
  if (sums_all && !adds) algorithm = Algorithm::kAuto;
  if (algorithm == Algorithm::kAuto && adds &&
      zero_.reduction == collectives::Reduction::kRoundedOnce) {
    algorithm = Algorithm::kDirect;
  }
  if (algorithm != Algorithm::kAuto && algorithm != Algorithm::kNative) {
    const auto phases = collectives::PhasesOf(topology_, algorithm, operation, bytes);
    if (phases.ok()) return collectives::SecondsOf(topology_, *phases);
    // The model lacks some that engines have: halves of ranks that are no power of two.
    if (!absl::IsFailedPrecondition(phases.status())) return phases.status();
  }
  BRIGADE_ASSIGN_OR_RETURN(const collectives::Choice choice,
                           collectives::Select(topology_, operation, bytes));
  return choice.seconds;
}

absl::StatusOr<double> StepCost::Coded(Codec codec, CollectiveKind operation, int64_t elements,
                                       DType dtype) const {
  const bool has_feedback = codec == Codec::kInt4 && config_.open.loco.has_value();
  BRIGADE_ASSIGN_OR_RETURN(const collectives::CodecCost cost,
                           collectives::CodecCostOf(topology_, codec, operation, elements, dtype,
                                                    {.error_feedback = has_feedback}));
  return collectives::SecondsOf(topology_, cost);
}

absl::StatusOr<double> StepCost::PlainGradients() const {
  const CollectiveKind operation =
      zero_.stage == 0 ? CollectiveKind::kAllReduce : CollectiveKind::kReduceScatter;
  double seconds = 0;
  for (const zero::Bucket& bucket : plan_.gradients()) {
    if (!bucket.trainable) continue;
    BRIGADE_ASSIGN_OR_RETURN(const double each,
                             Plain(operation, bucket.size * precision::SizeOf(WireOf(bucket))));
    seconds += times() * each;
  }
  return seconds;
}

absl::StatusOr<double> StepCost::CodesOfGradients() const {
  double seconds = 0;
  for (const zero::Bucket& bucket : plan_.gradients()) {
    if (!bucket.trainable) continue;
    BRIGADE_ASSIGN_OR_RETURN(double each, Coded(Codec::kInt4, CollectiveKind::kReduceScatter,
                                                bucket.size, bucket.dtype));
    if (zero_.stage == 0) {
      BRIGADE_ASSIGN_OR_RETURN(const double gather,
                               Plain(CollectiveKind::kAllGather, bucket.bytes()));
      each += gather;
    }
    seconds += times() * each;
  }
  return seconds;
}

absl::StatusOr<double> StepCost::Signs() const {
  double seconds = 0;
  for (const zero::Bucket& bucket : plan_.gradients()) {
    if (!bucket.trainable) continue;
    BRIGADE_ASSIGN_OR_RETURN(const double each,
                             Coded(Codec::kOneBit, CollectiveKind::kAllReduce, bucket.size,
                                   zero_.accumulates() ? zero_.accumulator : bucket.dtype));
    seconds += each;
  }
  return seconds;
}

absl::StatusOr<double> StepCost::PlainWeights(bool trainable) const {
  double seconds = 0;
  for (const zero::Bucket& bucket : plan_.buckets()) {
    if (!IsCoded(bucket, trainable)) continue;
    BRIGADE_ASSIGN_OR_RETURN(const double each, Plain(CollectiveKind::kAllGather, bucket.bytes()));
    seconds += each;
  }
  return seconds;
}

absl::StatusOr<double> StepCost::CodesOfWeights(bool trainable) const {
  double seconds = 0;
  for (const zero::Bucket& bucket : plan_.buckets()) {
    if (!IsCoded(bucket, trainable)) continue;
    BRIGADE_ASSIGN_OR_RETURN(const double each, Coded(Codec::kInt8, CollectiveKind::kAllGather,
                                                      bucket.size, bucket.dtype));
    seconds += each;
  }
  return seconds;
}

// Of codes by the model, if the options allow them.
template <typename Seconds>
absl::StatusOr<Way> WayOf(const zero::ZeroOptions& candidate, const std::string& why_not,
                          const Seconds& seconds) {
  if (!why_not.empty()) return Without(why_not);
  if (const absl::Status valid = zero::Validate(candidate); !valid.ok()) {
    return Without(std::string(valid.message()));
  }
  const absl::StatusOr<double> time = seconds();
  if (time.ok()) return Way{*time, {}};
  if (!absl::IsFailedPrecondition(time.status())) return time.status();
  return Without(std::string(time.status().message()));
}

void AddLine(absl::string_view key, absl::string_view codes, bool chosen, const Way& way,
             double plain, std::string& text) {
  absl::StrAppend(&text, text.empty() ? "" : "\n", key, " is \"auto\": ", chosen ? codes : "none");
  if (!way.seconds.has_value()) {
    absl::StrAppend(&text, ", since ", codes, " cannot be: ", way.why_not);
  } else {
    absl::StrAppend(&text, ". In a step these exchanges take ",
                    collectives::ShowSeconds(*way.seconds), " as ", codes, " and ",
                    collectives::ShowSeconds(plain), " as they are, by the cost model");
  }
}

}  // namespace

absl::StatusOr<ChosenCodecs> ChooseCodecs(const TrainConfig& config, const Topology& machine,
                                          absl::Span<const int> sharers, const zero::Plan& plan) {
  const std::optional<Topology> topology = collectives::SubsetOf(machine, sharers);
  ChosenCodecs chosen;
  const OpenCodecs& open = config.open;
  std::string why_no_codes =
      topology.has_value() ? "" : "ranks that share a state are not numbered node by node";
  const Topology alone = {
      .ranks_of_node = {1}, .inside = machine.inside, .between = machine.between};
  const StepCost cost(config, topology.value_or(alone), plan);

  if (open.gradients || open.compression) {
    collectives::CommunicatorOptions communicator = config.communicator;
    communicator.topology = machine;
    const Hops hops =
        HopsOf(communicator, config.zero.model_ranks, static_cast<int>(sharers.size()));
    std::string why_not = why_no_codes;
    if (why_not.empty() && hops.node_ranks == 0 && topology->nodes() > 1 &&
        topology->ranks_of_node.front() > 1) {
      why_not = hops.why_one.empty() ? "the cost model has no codes in one hop between such nodes"
                                     : hops.why_one;
    }
    BRIGADE_ASSIGN_OR_RETURN(const double plain, cost.PlainGradients());
    zero::ZeroOptions codes = config.zero, signs = config.zero;
    codes.quantized_gradients = kernels::QuantFormat::kInt4;
    codes.loco = open.loco;
    signs.gradient_compression = open.signs;
    codes.node_ranks = signs.node_ranks = hops.node_ranks;
    Way of_codes, of_signs;
    if (open.gradients) {
      BRIGADE_ASSIGN_OR_RETURN(of_codes,
                               WayOf(codes, why_not, [&] { return cost.CodesOfGradients(); }));
    }
    if (open.compression) {
      std::string why_no_signs = why_not;
      if (config.grid.pipeline > 1) why_no_signs = "a pipeline sums weights that stages share";
      if (config.replicas > 0) why_no_signs = "replicas exchange weights";
      BRIGADE_ASSIGN_OR_RETURN(of_signs, WayOf(signs, why_no_signs, [&] { return cost.Signs(); }));
    }
    const Way as_they_are = {plain, {}};
    chosen.signs = of_signs.IsFasterThan(as_they_are) && !of_codes.IsFasterThan(of_signs);
    chosen.gradients = !chosen.signs && of_codes.IsFasterThan(as_they_are);
    if (chosen.signs || chosen.gradients) chosen.node_ranks = hops.node_ranks;
    if (open.gradients) {
      AddLine("zero_quantized_gradients", open.loco.has_value() ? "int4 with LoCo" : "int4",
              chosen.gradients, of_codes, plain, chosen.text);
    }
    if (open.compression) {
      AddLine("gradient_compression", "one_bit", chosen.signs, of_signs, plain, chosen.text);
    }
  }
  const auto choose_weights = [&](absl::string_view key, bool trainable,
                                  bool exists) -> absl::StatusOr<bool> {
    BRIGADE_ASSIGN_OR_RETURN(const double plain, cost.PlainWeights(trainable));
    zero::ZeroOptions codes = config.zero;
    (trainable ? codes.quantized_weights : codes.quantized_frozen_weights) =
        kernels::QuantFormat::kInt8;
    std::string why_not = why_no_codes;
    if (!exists) why_not = absl::StrCat("stage ", config.zero.stage, " gathers none of them");
    if (exists && plain == 0) why_not = "there are no such weights of 16 bits to be gathered";
    BRIGADE_ASSIGN_OR_RETURN(const Way way,
                             WayOf(codes, why_not, [&] { return cost.CodesOfWeights(trainable); }));
    const bool pays = way.IsFasterThan({plain, {}});
    AddLine(key, "int8", pays, way, plain, chosen.text);
    return pays;
  };
  if (open.weights) {
    BRIGADE_ASSIGN_OR_RETURN(chosen.weights,
                             choose_weights("zero_quantized_weights", true, config.zero.stage > 0));
  }
  if (open.frozen_weights) {
    BRIGADE_ASSIGN_OR_RETURN(
        chosen.frozen_weights,
        choose_weights("zero_quantized_nontrainable_weights", false, config.zero.stage == 3));
  }
  return chosen;
}

void TakeCodecs(const ChosenCodecs& chosen, TrainConfig& config) {
  zero::ZeroOptions& zero = config.zero;
  if (chosen.weights) zero.quantized_weights = kernels::QuantFormat::kInt8;
  if (chosen.frozen_weights) zero.quantized_frozen_weights = kernels::QuantFormat::kInt8;
  if (chosen.gradients) {
    zero.quantized_gradients = kernels::QuantFormat::kInt4;
    zero.loco = config.open.loco;
  }
  if (chosen.signs) zero.gradient_compression = config.open.signs;
  // Of exchanges that were not open it is there already.
  if (chosen.gradients || chosen.signs) zero.node_ranks = chosen.node_ranks;
  config.codec_choice = chosen.text;
  config.open = {};
}

absl::StatusOr<Job> WithChosenCodecs(const Job& job, const Task& task, parallel::Grid& grid,
                                     int local_rank, device::Context& context,
                                     device::Stream& stream) {
  collectives::Communicator& world = grid.world();
  const TrainConfig& config = job.config;
  std::optional<Topology> machine = config.communicator.topology;
  if (config.open.measures) {
    std::vector<int> ranks_of_node;
    if (machine.has_value()) {
      ranks_of_node = machine->ranks_of_node;
    } else {
      BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, world.AllGatherHost({local_rank}));
      const std::vector<int> local_ranks(all.begin(), all.end());
      auto nodes = collectives::RanksOfNodes(local_ranks);
      if (!nodes.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(nodes.status().message(),
                         "; brigade.ranks_per_node, or brigade.topology, says which ranks are on "
                         "one node, by which \"auto\" chooses what crosses the wire as codes"));
      }
      ranks_of_node = *std::move(nodes);
    }
    int node = 0;
    for (int end = 0; node < static_cast<int>(ranks_of_node.size()); ++node) {
      end += ranks_of_node[static_cast<size_t>(node)];
      if (world.rank() < end) break;
    }
    BRIGADE_ASSIGN_OR_RETURN(machine, collectives::MeasureTopology(world, node, context, stream));
  }
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> replica,
                           grid.replica().AllGatherHost({world.rank()}));
  // With replicas too these are the ranks of one group in one replica.
  const size_t groups = config.zero.shard_ranks > 0
                            ? replica.size() / static_cast<size_t>(config.zero.shard_ranks)
                            : static_cast<size_t>(std::max(config.replicas, 1));
  const std::vector<int> sharers(
      replica.begin(), replica.begin() + static_cast<std::ptrdiff_t>(replica.size() / groups));
  const zero::ZeroOptions& zero = config.zero;
  BRIGADE_ASSIGN_OR_RETURN(zero::ModelSpec spec, task.Spec(job, grid.coordinates(), context));
  BRIGADE_ASSIGN_OR_RETURN(
      const zero::Plan plan,
      zero::Plan::Create(std::move(spec), {static_cast<int>(sharers.size()), zero.dtype,
                                           zero.bucket_elements, zero.tied_apart}));
  ChosenCodecs chosen;
  if (world.rank() == 0) {
    BRIGADE_ASSIGN_OR_RETURN(chosen, ChooseCodecs(config, *machine, sharers, plan));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      const std::vector<int64_t> said,
      world.AllGatherHost({chosen.weights, chosen.frozen_weights, chosen.gradients, chosen.signs,
                           chosen.node_ranks}));
  // Rank 0's.
  chosen.weights = said[0] != 0;
  chosen.frozen_weights = said[1] != 0;
  chosen.gradients = said[2] != 0;
  chosen.signs = said[3] != 0;
  chosen.node_ranks = static_cast<int>(said[4]);
  Job with = job;
  TakeCodecs(chosen, with.config);
  with.config.codec_choice = absl::StrCat(
      config.open.measures ? "Figures of the machine are measured.\n" : "", chosen.text);
  return with;
}

}  // namespace brigade::train
