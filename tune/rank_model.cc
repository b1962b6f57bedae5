#include "brigade/tune/rank_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/tuning/cost_model.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/model_part.h"
#include "brigade/examples/gpt/pass_collectives.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/examples/gpt/pipeline_parts.h"
#include "brigade/examples/gpt/rank_part.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/parallel/pipeline/simulate.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/replicas/outer_optimizer.h"
#include "brigade/replicas/round_plan.h"
#include "brigade/train/rank_memory.h"
#include "brigade/train/stage_setup.h"
#include "brigade/train/step_batch.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/movement.h"
#include "brigade/zero/plan/step_collectives.h"

namespace brigade::tune {
namespace {

using collectives::CollectiveKind;
using collectives::CollectiveSignature;
using collectives::Communicator;
using device::Tier;

// Of what passes can hide where a processor is free, as parallel/plan takes it.
constexpr double kHidden = 0.8;
// Of a product's operation where nothing was measured.
constexpr double kOperationSeconds = 1e-9;
// What an element of a sum over micro-batches reads and writes.
constexpr double kAccumulatedBytes = 12;

// a + (b - a) * at, of each number: costs are plain doubles.
gpt::PassCosts Line(const gpt::PassCosts& a, const gpt::PassCosts& b, double at) {
  const auto one = [at](double x, double y) { return std::max(x + (y - x) * at, 0.0); };
  const auto times = [&](const gpt::StageTimes& x, const gpt::StageTimes& y) -> gpt::StageTimes {
    return {one(x.forward, y.forward), one(x.backward, y.backward)};
  };
  return {.embedding = times(a.embedding, b.embedding),
          .block = times(a.block, b.block),
          .head = times(a.head, b.head),
          .pointwise = one(a.pointwise, b.pointwise),
          .middle = one(a.middle, b.middle),
          .qkv = one(a.qkv, b.qkv),
          .expanded = one(a.expanded, b.expanded),
          .attention = one(a.attention, b.attention)};
}

// Of the chunks of one stage of a pipeline, forward and backward, without what is made again.
gpt::StageTimes TimesOf(const gpt::PassCosts& costs, const gpt::StageRange& chunk,
                        const gpt::ModelOptions& model) {
  gpt::StageTimes sum;
  for (int stage = chunk.first; stage < chunk.end; ++stage) {
    const gpt::StageTimes& its = stage == 0                          ? costs.embedding
                                 : stage + 1 == gpt::StagesOf(model) ? costs.head
                                                                     : costs.block;
    sum.forward += its.forward;
    sum.backward += its.backward;
  }
  return sum;
}

}  // namespace

gpt::PassCosts MeasuredCosts::At(int64_t batch) const {
  if (large_batch == small_batch) {
    // In proportion.
    gpt::PassCosts none;
    return Line(none, small, static_cast<double>(batch) / static_cast<double>(small_batch));
  }
  return Line(
      small, large,
      static_cast<double>(batch - small_batch) / static_cast<double>(large_batch - small_batch));
}

struct RankModel::Part {
  gpt::PassShape shape;
  const parallel::Grid* grid;
  train::ZeroGroups zero_groups;
  parallel::PipelineSchedule lists;
  parallel::StageBuffers buffers;
  std::vector<int> boundaries;
  // With its plan by operations, as the trainer's.
  std::unique_ptr<gpt::RankPart> part;
  zero::ZeroOptions zero;
  zero::Plan parameters;

  const gpt::PartPlan& plan() const { return part->plan(); }
};

RankModel::SharedKey RankModel::KeyOf(const gpt::Job& job) {
  const parallel::GridShape& grid = job.config.grid;
  return {grid.tensor, grid.context, job.config.sequence_parallel, job.config.tensor_pieces,
          job.config.context_exchange == train::ContextExchange::kRing};
}

gpt::PassCosts RankModel::CostsOf(const gpt::Job& job) const {
  const auto found = costs_.find(KeyOf(job));
  const gpt::PassShape shape = gpt::ShapeOf(job);
  if (found != costs_.end()) return found->second.At(shape.batch);
  gpt::PassCosts none;
  return Line(none, gpt::CountOperations(shape), kOperationSeconds);
}

absl::StatusOr<RankModel::Part> RankModel::PartOf(const gpt::Job& job, const World::Place& place,
                                                  device::Context& context) const {
  const parallel::Coordinates& at = place.grid->coordinates();
  const gpt::PassShape shape = gpt::ShapeOf(job, at);
  BRIGADE_RETURN_IF_ERROR(gpt::Validate(shape));
  const gpt::PassCosts operations = gpt::CountOperations(shape);
  const parallel::PipelineShape pipeline = job.config.pipeline_shape();
  const auto limit = gpt::MemoryLimitOf(job, shape, pipeline);
  BRIGADE_ASSIGN_OR_RETURN(std::vector<int> boundaries,
                           gpt::PartsOf(shape, pipeline, job.config.partition, CostsOf(job),
                                        limit.has_value() ? &*limit : nullptr));
  BRIGADE_ASSIGN_OR_RETURN(parallel::PipelineSchedule lists, train::ListsOf(pipeline));
  BRIGADE_ASSIGN_OR_RETURN(const parallel::StageBuffers buffers,
                           parallel::PipelineExecutor::BuffersOf(lists, at.pipeline));
  const gpt::ModelPart part(job.model, gpt::ChunksOf(pipeline, boundaries, at.pipeline));
  BRIGADE_ASSIGN_OR_RETURN(
      gpt::PartPlan plan,
      gpt::PlanPart(shape, operations, part, gpt::SlotsOf(buffers), job.config.recompute));
  auto planned = std::make_unique<gpt::RankPart>(gpt::RankPart::Parts{.job = job,
                                                                      .model = job.model,
                                                                      .corpus = job.corpus,
                                                                      .grid = *place.grid,
                                                                      .context = context});
  planned->Take(std::move(plan));
  zero::ZeroOptions options =
      train::ZeroOptionsOf(job.config, *planned, lists.lists[static_cast<size_t>(at.pipeline)]);
  BRIGADE_RETURN_IF_ERROR(zero::Validate(options));
  train::ZeroGroups groups = *place.zero_groups;
  groups.outer.tied =
      planned->is_tied_outside() ? place.grid->group(parallel::GridGroup::kTied) : nullptr;
  // As ZeroOptimizer::Create makes it.
  const int shard_groups = groups.outer.between == nullptr ? 1 : groups.outer.between->size();
  BRIGADE_ASSIGN_OR_RETURN(
      zero::Plan parameters,
      zero::Plan::Create(planned->spec(),
                         {.ranks = groups.shards.size(),
                          .dtype = options.dtype,
                          .bucket_elements = options.bucket_elements,
                          .tied_apart = options.tied_apart,
                          .shard_groups = shard_groups,
                          .tile_elements = optim::TensorTile(options.optimizer.kind),
                          .coded = optim::CodesOf(options.optimizer)}));
  return Part{.shape = shape,
              .grid = place.grid.get(),
              .zero_groups = groups,
              .lists = std::move(lists),
              .buffers = buffers,
              .boundaries = std::move(boundaries),
              .part = std::move(planned),
              .zero = std::move(options),
              .parameters = std::move(parameters)};
}

absl::StatusOr<RankNeeds> RankModel::NeedsOf(const gpt::Job& job, const World::Place& place,
                                             const Part& part) const {
  RankNeeds needs;
  BRIGADE_ASSIGN_OR_RETURN(needs.terms, train::MemoryOfRank({.job = job,
                                                             .grid = *place.grid,
                                                             .zero_groups = part.zero_groups,
                                                             .part = *part.part,
                                                             .buffers = part.buffers,
                                                             .parameters = part.parameters,
                                                             .zero = part.zero}));
  if (job.config.replicas > 0) {
    BRIGADE_ASSIGN_OR_RETURN(auto terms,
                             replicas::MemoryOf(part.parameters, part.zero, job.config.outer));
    needs.terms.insert(needs.terms.end(), terms.begin(), terms.end());
    Communicator& between = *part.zero_groups.replicas;
    BRIGADE_ASSIGN_OR_RETURN(
        auto workspace,
        replicas::WorkspaceOfRounds(part.parameters, part.zero, job.config.outer, between));
    BRIGADE_ASSIGN_OR_RETURN(const auto of_step, between.WorkspaceFor(train::kStepSums));
    needs.terms.push_back({Tier::kDevice, device::Purpose::kCommunication, "workspace of rounds",
                           collectives::Max(workspace, of_step).bytes()});
  }
  needs.device_bytes =
      zero::Total(needs.terms, Tier::kDevice) + train::PassingBytes(part.parameters, world_.size());
  needs.host_bytes = zero::Total(needs.terms, Tier::kHost);
  needs.activation_bytes = gpt::ActivationBytes(part.shape, part.plan());
  return needs;
}

double RankModel::CollectiveSeconds(const CollectiveSignature& signature, int size) const {
  if (size <= 1) return 0;
  collectives::Topology topology = figures_.topology;
  topology.ranks_of_node = {size};
  const auto element = static_cast<double>(precision::SizeOf(signature.dtype));
  const auto count = static_cast<double>(signature.count);
  const bool of_parts = signature.kind == CollectiveKind::kReduceScatter ||
                        signature.kind == CollectiveKind::kAllGather;
  if (of_parts || signature.kind == CollectiveKind::kAllReduce) {
    const auto bytes = static_cast<int64_t>(count * element * (of_parts ? size : 1));
    const auto phases = collectives::PhasesOf(topology, signature.algorithm, signature.kind, bytes);
    if (phases.ok()) return collectives::SecondsOf(topology, *phases);
  }
  // One message to each other, or to one.
  const bool to_all = signature.kind == CollectiveKind::kAllToAll;
  const double sent = count * element * (to_all ? size - 1 : 1);
  return topology.call_s + topology.inside.latency_s + sent / topology.inside.bytes_per_s;
}

absl::StatusOr<StepSeconds> RankModel::SecondsOf(const gpt::Job& job, const Part& part,
                                                 double& work) const {
  StepSeconds seconds;
  const train::TrainConfig& config = job.config;
  const gpt::PassCosts costs = CostsOf(job);
  const auto micro_batches = static_cast<double>(config.zero.micro_batches);
  // By the same policy, in seconds.
  BRIGADE_ASSIGN_OR_RETURN(
      const gpt::PartPlan timed,
      gpt::PlanPart(part.shape, costs, part.plan().part, part.plan().slots, config.recompute));
  seconds.passes = micro_batches * timed.time;
  work = seconds.passes;
  for (const parallel::PassCollective& each : part.part->CollectivesOfPasses()) {
    Communicator& group = *part.grid->group(each.group);
    BRIGADE_ASSIGN_OR_RETURN(const CollectiveSignature resolved, group.Resolve(each.signature));
    seconds.shared_passes +=
        micro_batches * static_cast<double>(each.times) * CollectiveSeconds(resolved, group.size());
  }
  for (const auto& each : zero::internal::CollectivesOfStep(part.parameters, part.zero,
                                                            part.zero_groups.shards.rank())) {
    Communicator& group =
        zero::internal::GroupOf(each.group, part.zero_groups.shards, part.zero_groups.outer);
    BRIGADE_ASSIGN_OR_RETURN(const CollectiveSignature resolved, group.Resolve(each.signature));
    seconds.collectives +=
        static_cast<double>(each.times) * CollectiveSeconds(resolved, group.size());
  }
  const double free = std::clamp(
      static_cast<double>(figures_.processors - world_.size()) / world_.size(), 0.0, 1.0);
  if (config.zero.overlap_comm) {
    seconds.collectives -= std::min(kHidden * free * seconds.collectives, kHidden * seconds.passes);
  }
  double elements = 0;
  for (const zero::Bucket& bucket : part.parameters.buckets()) {
    if (bucket.trainable) elements += static_cast<double>(bucket.size);
  }
  const double sliced = elements / part.zero_groups.shards.size();
  seconds.update =
      (part.zero.traits().whole_optimizer_state ? elements : sliced) * figures_.update_s;
  if (part.zero.accumulates()) {
    const bool at_once = zero::internal::ReducesOnce(part.parameters, part.zero);
    seconds.update += micro_batches * (at_once ? elements : sliced) * kAccumulatedBytes /
                      figures_.memory_bytes_per_s;
  }
  const zero::Movement moved = zero::MovementOfStep(part.parameters, part.zero);
  seconds.moves =
      static_cast<double>(moved.to_host + moved.from_host) / figures_.link_bytes_per_s +
      static_cast<double>(moved.file_read + moved.file_written) / figures_.file_bytes_per_s;
  const double stashed = micro_batches * static_cast<double>(part.plan().WrittenBytes());
  seconds.moves += 2 * stashed / figures_.link_bytes_per_s;
  return seconds;
}

absl::StatusOr<Prediction> RankModel::Of(const gpt::Job& job, bool with_time) {
  const absl::StatusOr<const std::vector<World::Place>*> made = world_.PlacesOf(job);
  // No refusal of this job: the world is gone for all that follow.
  if (!made.ok()) return absl::InternalError(made.status().message());
  const std::vector<World::Place>* const places = *made;
  Prediction prediction;
  prediction.needs.device_bytes = -1;
  double work = 0, longest = 0;
  // Of the pipeline: by parts of the model.
  const parallel::PipelineShape pipeline = job.config.pipeline_shape();
  parallel::PipelineTimes times;
  times.forward.resize(static_cast<size_t>(pipeline.parts()));
  times.backward_input = times.backward_weight = times.forward;
  std::optional<parallel::PipelineSchedule> lists;
  const double share = std::max(1.0, static_cast<double>(world_.size()) / figures_.processors);
  for (int rank = 0; rank < world_.size(); ++rank) {
    const World::Place& place = (*places)[static_cast<size_t>(rank)];
    BRIGADE_ASSIGN_OR_RETURN(Part part, PartOf(job, place, world_.context(rank)));
    BRIGADE_ASSIGN_OR_RETURN(RankNeeds needs, NeedsOf(job, place, part));
    prediction.host_bytes = std::max(prediction.host_bytes, needs.host_bytes);
    if (needs.device_bytes > prediction.needs.device_bytes) {
      prediction.needs = std::move(needs);
      prediction.rank = rank;
    }
    const parallel::Coordinates& at = place.grid->coordinates();
    // Ranks that differ in nothing but the texts, or the part of a matrix, take as long.
    if (!with_time || at.tensor + at.context + at.data > 0) continue;
    double of_rank = 0;
    BRIGADE_ASSIGN_OR_RETURN(const StepSeconds seconds, SecondsOf(job, part, of_rank));
    work += of_rank;
    if (seconds.total() > longest) {
      longest = seconds.total();
      prediction.seconds = seconds;
    }
    if (pipeline.stages == 1) continue;
    // What is made again goes with the backward passes.
    const gpt::PassCosts costs = CostsOf(job);
    double once = 0;
    for (const gpt::StageRange& chunk : part.plan().part.chunks()) {
      const gpt::StageTimes its = TimesOf(costs, chunk, job.model);
      once += its.forward + its.backward;
    }
    const double made_again =
        once > 0 ? std::max(of_rank / job.config.zero.micro_batches - once, 0.0) / once : 0;
    for (int chunk = 0; chunk < pipeline.schedule.chunks; ++chunk) {
      const gpt::StageRange& range = part.plan().part.chunks()[static_cast<size_t>(chunk)];
      const gpt::StageTimes its = TimesOf(costs, range, job.model);
      const auto p = static_cast<size_t>(parallel::PartOf(pipeline, at.pipeline, chunk));
      const double both = its.forward + its.backward;
      times.forward[p] = its.forward / share;
      times.backward_input[p] = times.backward_weight[p] =
          (its.backward + made_again * both) / 2 / share;
    }
    times.transfer = figures_.topology.inside.latency_s +
                     static_cast<double>(gpt::BoundaryOf(part.shape).bytes()) /
                         figures_.topology.inside.bytes_per_s;
    lists = std::move(part.lists);
  }
  if (!with_time || pipeline.stages == 1) return prediction;
  // Stages take turns: the processors that one does not use are another's. So a step takes what the
  // lists take with a processor each, or all work on the processors that there are.
  BRIGADE_ASSIGN_OR_RETURN(const parallel::Simulation simulated, parallel::Simulate(*lists, times));
  const double alike = static_cast<double>(world_.size()) / pipeline.stages;
  const double of_processors = work / share * alike / figures_.processors;
  const double passes =
      std::max(simulated.makespan * std::max(1.0, alike / figures_.processors), of_processors);
  const double busiest = *std::max_element(simulated.work.begin(), simulated.work.end());
  prediction.seconds.passes = std::min(passes, std::max(busiest, of_processors));
  prediction.seconds.bubble = passes - prediction.seconds.passes;
  return prediction;
}

absl::StatusOr<Prediction> RankModel::MemoryOf(const gpt::Job& job) { return Of(job, false); }
absl::StatusOr<Prediction> RankModel::Predict(const gpt::Job& job) { return Of(job, true); }

std::string DescribeTerms(const std::vector<zero::MemoryTerm>& terms, Tier tier) {
  std::vector<zero::MemoryTerm> sorted;
  for (const zero::MemoryTerm& term : terms) {
    if (term.tier != tier || term.bytes == 0) continue;
    // Padding, of weights and of others.
    const auto same = std::find_if(sorted.begin(), sorted.end(),
                                   [&](const auto& other) { return other.name == term.name; });
    if (same == sorted.end()) {
      sorted.push_back(term);
    } else {
      same->bytes += term.bytes;
    }
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::string text;
  for (const zero::MemoryTerm& term : sorted) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", term.name, " ", term.bytes);
  }
  return text;
}

}  // namespace brigade::tune
