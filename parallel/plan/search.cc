#include "brigade/parallel/plan/search.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/device/status_macros.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/memory_model.h"

namespace brigade::parallel {
namespace {

std::vector<int> DivisorsOf(int64_t number, const std::optional<int>& fixed) {
  std::vector<int> divisors;
  for (int64_t each = 1; each <= number; ++each) {
    if (number % each == 0 && (!fixed.has_value() || *fixed == each)) {
      divisors.push_back(static_cast<int>(each));
    }
  }
  return divisors;
}

class Searcher {
 public:
  Searcher(const Transformer& model, const Machine& machine, const Execution& execution,
           const SearchSpace& space)
      : model_(model),
        execution_(execution),
        space_(space),
        memory_(model, execution),
        cost_(model, machine, execution) {}

  absl::StatusOr<SearchResult> Run() {
    for (const int tensor : DivisorsOf(space_.ranks, space_.tensor)) {
      for (const int context : DivisorsOf(space_.ranks / tensor, space_.context)) {
        const int rest = space_.ranks / tensor / context;
        for (const int pipeline : DivisorsOf(rest, space_.pipeline)) {
          const int data = rest / pipeline;
          if (space_.data.has_value() && *space_.data != data) continue;
          BRIGADE_RETURN_IF_ERROR(TryGrid({tensor, context, data, pipeline}));
        }
      }
    }
    return Finish();
  }

 private:
  absl::Status TryGrid(const GridShape& grid) {
    ++result_.grids;
    Configuration configuration;
    configuration.grid = grid;
    const char* reason = nullptr;
    if (const absl::Status status = Validate(configuration, model_, execution_); !status.ok()) {
      reason =
          grid.data > 1 && execution_.batch % grid.data != 0 ? "data ranks do not divide the batch"
          : grid.pipeline > model_.layers + 2                ? "more stages than layers"
                                              : "the model's heads, MLP or context do not divide";
    }
    if (reason != nullptr) {
      ++grids_left_out_[reason];
      return absl::OkStatus();
    }
    for (int micro_batch = 1; micro_batch <= space_.largest_micro_batch; micro_batch *= 2) {
      if (space_.micro_batch.has_value() && *space_.micro_batch != micro_batch) continue;
      configuration.micro_batch = micro_batch;
      for (const ScheduleChoice& schedule : SchedulesOf(grid)) {
        configuration.schedule = schedule;
        for (int stage = 0; stage < zero::kStages; ++stage) {
          if (space_.zero_stage.has_value() && *space_.zero_stage != stage) continue;
          configuration.zero_stage = stage;
          for (const Recomputation recomputation : kRecomputations) {
            if (space_.recomputation.value_or(recomputation) != recomputation) continue;
            configuration.recomputation = recomputation;
            for (const int replicas : ReplicasOf(grid)) {
              configuration.replicas = replicas;
              BRIGADE_RETURN_IF_ERROR(TryGroups(configuration));
            }
          }
        }
      }
    }
    return absl::OkStatus();
  }

  // Of a grid whose ranks have all of the model: else replicas that are asked for are refused.
  std::vector<int> ReplicasOf(const GridShape& grid) const {
    if (execution_.replica_period == 0) return {1};
    if (space_.replicas.has_value()) return {*space_.replicas};
    return grid.ranks() > grid.data ? std::vector<int>{1} : DivisorsOf(grid.data, {});
  }

  // All that share a state with all, and then with fewer and fewer.
  absl::Status TryGroups(Configuration configuration) {
    const GridShape& grid = configuration.grid;
    const int ranks = grid.context * grid.data / configuration.replicas;
    if (space_.shard_ranks.has_value()) {
      configuration.shard_ranks = *space_.shard_ranks == ranks ? 0 : *space_.shard_ranks;
      return Try(configuration).status();
    }
    configuration.shard_ranks = 0;
    BRIGADE_ASSIGN_OR_RETURN(Outcome outcome, Try(configuration));
    if (configuration.zero_stage == 0 || outcome == Outcome::kImpossible) return absl::OkStatus();
    std::vector<int>& divisors = divisors_[ranks];
    if (divisors.empty()) divisors = DivisorsOf(ranks, {});
    for (const int groups : divisors) {
      if (groups == 1 || groups == ranks) continue;
      configuration.shard_ranks = ranks / groups;
      if (outcome == Outcome::kFits) {
        BRIGADE_ASSIGN_OR_RETURN(outcome, Try(configuration));
      } else {
        ++result_.configurations;
        ++left_out_["share a state with fewer ranks than others that do not fit"];
      }
    }
    return absl::OkStatus();
  }

  // Without a pipeline all schedules are the same.
  std::vector<ScheduleChoice> SchedulesOf(const GridShape& grid) const {
    if (grid.pipeline == 1) return {{}};
    if (!space_.schedules.empty()) return space_.schedules;
    std::vector<ScheduleChoice> schedules = {{ScheduleKind::kGpipe, 1},
                                             {ScheduleKind::kOneForwardOneBackward, 1},
                                             {ScheduleKind::kZeroBubbleH1, 1},
                                             {ScheduleKind::kZeroBubbleV, 2}};
    for (int chunks = 2; chunks <= space_.most_chunks; ++chunks) {
      schedules.push_back({ScheduleKind::kInterleaved, chunks});
    }
    return schedules;
  }

  enum class Outcome : uint8_t { kImpossible, kDoesNotFit, kFits };

  absl::StatusOr<Outcome> Try(const Configuration& configuration) {
    ++result_.configurations;
    const GridShape& grid = configuration.grid;
    const int sharers = grid.data * grid.context / configuration.replicas;
    const int shard_ranks = configuration.shard_ranks;
    const char* reason = nullptr;
    if (configuration.replicas > 1 && grid.ranks() > grid.data) {
      reason = "replicas of ranks that have parts of a model, or of texts";
    } else if (grid.data % configuration.replicas != 0 ||
               (shard_ranks > 0 && sharers % shard_ranks != 0)) {
      reason = "so many replicas, or ranks that share a state, do not divide the data ranks";
    } else if (configuration.zero_stage > 0 && sharers == 1) {
      reason = "nothing to share for a stage of ZeRO";
    } else if (shard_ranks > 0 && configuration.zero_stage == 0) {
      reason = "groups with a state each are all that stage 0 is";
    } else if (shard_ranks == 1) {
      reason = "groups of one rank, which stage 0 is";
    } else if (configuration.recomputation == Recomputation::kSelective &&
               execution_.fused_attention) {
      reason = "fused attention keeps nothing that selective recomputation drops";
    } else if (!Validate(configuration, model_, execution_).ok()) {
      reason = execution_.batch % (int64_t{grid.data} * configuration.micro_batch) != 0
                   ? "micro-batches do not divide the batch"
                   : "too few layers, or micro-batches that are no groups, for the schedule";
    }
    if (reason != nullptr) {
      ++left_out_[reason];
      return Outcome::kImpossible;
    }
    constexpr char kDoesNotFit[] = "do not fit in memory";
    // That of all ranks has been looked at, and has less: its plan is made, and its memory known.
    const bool is_smaller = shard_ranks > 0 && !space_.shard_ranks.has_value();
    if (is_smaller && LeastMemory(configuration) > space_.memory_bytes) {
      ++left_out_[kDoesNotFit];
      return Outcome::kDoesNotFit;
    }
    BRIGADE_ASSIGN_OR_RETURN(const MemoryUse memory, memory_.MemoryOf(configuration));
    if (memory.total() > space_.memory_bytes) {
      ++left_out_[kDoesNotFit];
      result_.least_memory_left_out = std::min(result_.least_memory_left_out, memory.total());
      return Outcome::kDoesNotFit;
    }
    BRIGADE_ASSIGN_OR_RETURN(const ZeroUse zero, memory_.ZeroOf(configuration, grid.pipeline > 1));
    result_.candidates.push_back({configuration, memory, cost_.TimeOf(configuration, zero)});
    return Outcome::kFits;
  }

  // No more than what a rank of the first stage needs: its layers' weights, gradients and state,
  // and activations.
  double LeastMemory(const Configuration& configuration) const {
    const auto layers = static_cast<double>(LayersOfStage(model_, configuration));
    const double parameters =
        layers * static_cast<double>(ParametersOfLayer(model_).total()) / configuration.grid.tensor;
    return zero::PaperBytes(parameters, ShardRanks(configuration), configuration.zero_stage) +
           memory_.ActivationsOf(configuration, 0);
  }

  absl::StatusOr<SearchResult> Finish() {
    result_.grids_left_out.assign(grids_left_out_.begin(), grids_left_out_.end());
    result_.left_out.assign(left_out_.begin(), left_out_.end());
    if (result_.candidates.empty()) return absl::NotFoundError(NothingFits());
    std::stable_sort(result_.candidates.begin(), result_.candidates.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return std::pair(a.time.total(), a.memory.total()) <
                              std::pair(b.time.total(), b.memory.total());
                     });
    double least = std::numeric_limits<double>::infinity();
    for (const Candidate& each : result_.candidates) {
      if (each.memory.total() >= least) continue;
      least = each.memory.total();
      result_.frontier.push_back(each);
    }
    std::reverse(result_.frontier.begin(), result_.frontier.end());
    return std::move(result_);
  }

  std::string NothingFits() const {
    const auto counts = [](std::string* out, const auto& reason) {
      absl::StrAppend(out, reason.second, " ", reason.first);
    };
    std::string text = absl::StrCat("nothing fits on ", space_.ranks, " ranks: of ", result_.grids,
                                    " grids ", absl::StrJoin(result_.grids_left_out, ", ", counts),
                                    "; of ", result_.configurations, " configurations ",
                                    absl::StrJoin(result_.left_out, ", ", counts));
    if (result_.least_memory_left_out < std::numeric_limits<double>::infinity()) {
      absl::StrAppend(&text, "; the least needs ", result_.least_memory_left_out / 1e9,
                      " GB a rank, there are ", space_.memory_bytes / 1e9);
    }
    return text;
  }

  const Transformer& model_;
  const Execution& execution_;
  const SearchSpace& space_;
  MemoryModel memory_;
  CostModel cost_;
  SearchResult result_;
  std::map<std::string, int64_t> grids_left_out_, left_out_;
  // Of numbers of ranks, each once: there are many configurations.
  std::map<int, std::vector<int>> divisors_;
};

}  // namespace

absl::Status Validate(const SearchSpace& space) {
  const auto wrong = [](const char* what, int value, int most) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", value, "; it must be 1 to ", most));
  };
  constexpr int kMostRanks = 1 << 15;
  if (space.ranks < 1 || space.ranks > kMostRanks) {
    return wrong("the number of ranks", space.ranks, kMostRanks);
  }
  for (const auto& [what, extent] :
       {std::pair("tensor", space.tensor), std::pair("context", space.context),
        std::pair("data", space.data), std::pair("pipeline", space.pipeline)}) {
    if (!extent.has_value() || (*extent >= 1 && space.ranks % *extent == 0)) continue;
    return absl::InvalidArgumentError(absl::StrCat("the ", what, " extent ", *extent,
                                                   " does not divide ", space.ranks, " ranks"));
  }
  if (space.replicas.has_value() && (*space.replicas < 1 || space.ranks % *space.replicas != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(*space.replicas, " replicas do not divide ", space.ranks, " ranks"));
  }
  if (const int ranks = space.shard_ranks.value_or(0); ranks < 0 || ranks > space.ranks) {
    return absl::InvalidArgumentError(absl::StrCat("the ranks that share a state are ", ranks,
                                                   "; they must be 0 to ", space.ranks));
  }
  if (space.zero_stage.has_value() && (*space.zero_stage < 0 || *space.zero_stage > 3)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ZeRO stage is ", *space.zero_stage, "; it must be 0 to 3"));
  }
  constexpr int kMostTexts = 1 << 16;
  if (const int texts = space.micro_batch.value_or(1);
      texts < 1 || texts > space.largest_micro_batch || (texts & (texts - 1)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the micro-batch is ", texts,
                                                   "; it must be a power of two, 1 to ",
                                                   space.largest_micro_batch));
  }
  if (space.largest_micro_batch < 1 || space.largest_micro_batch > kMostTexts) {
    return wrong("the largest micro-batch", space.largest_micro_batch, kMostTexts);
  }
  constexpr int kMostChunks = 64;
  if (space.most_chunks < 1 || space.most_chunks > kMostChunks) {
    return wrong("the most chunks", space.most_chunks, kMostChunks);
  }
  return absl::OkStatus();
}

absl::StatusOr<SearchResult> Search(const Transformer& model, const Machine& machine,
                                    const Execution& execution, const SearchSpace& space) {
  BRIGADE_RETURN_IF_ERROR(Validate(model));
  BRIGADE_RETURN_IF_ERROR(Validate(machine));
  BRIGADE_RETURN_IF_ERROR(Validate(execution));
  BRIGADE_RETURN_IF_ERROR(Validate(space));
  if (space.replicas.value_or(1) > 1 && execution.replica_period == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(*space.replicas, " replicas without the steps between two of their rounds"));
  }
  return Searcher(model, machine, execution, space).Run();
}

}  // namespace brigade::parallel
