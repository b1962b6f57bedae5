#include "brigade/tune/setup.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/collectives/options.h"
#include "brigade/device/status_macros.h"
#include "brigade/train/config/config.h"
#include "brigade/zero/options.h"

namespace brigade::tune {
namespace {

bool Contains(const std::vector<Dimension>& all, Dimension each) {
  return std::find(all.begin(), all.end(), each) != all.end();
}

// Of texts and ranks: beyond it numbers of a config are no whole numbers any more.
constexpr int64_t kMost = int64_t{1} << 53;

// Of a key that is a number, at most kMost; 0 of none, and of less.
int64_t NumberAt(const Json& config, absl::string_view path) {
  const Json* const value = FindGiven(config, path);
  if (value == nullptr || !value->is_number()) return 0;
  return static_cast<int64_t>(std::clamp(value->get<double>(), 0.0, static_cast<double>(kMost)));
}

int64_t FirstOf(const Json& config, std::initializer_list<absl::string_view> paths) {
  for (const absl::string_view path : paths) {
    if (const int64_t number = NumberAt(config, path); number > 0) return number;
  }
  return 0;
}

absl::StatusOr<train::AutotuningOptions> OptionsOf(const Json& config, int ranks) {
  const Json* const section = FindGiven(config, "autotuning");
  Json least = {{"train_batch_size", ranks}, {"optimizer", {{"type", "AdamW"}}}};
  if (section != nullptr) least["autotuning"] = *section;
  BRIGADE_ASSIGN_OR_RETURN(const train::TrainConfig parsed,
                           train::ParseConfig(least.dump(), ranks));
  return parsed.autotuning;
}

// By how many ranks an axis of the grid may share.
std::vector<int> AxisOf(const Totals& totals) {
  const std::vector<int64_t> divisors = DivisorsOf(totals.ranks, 1, totals.ranks);
  return {divisors.begin(), divisors.end()};
}

// That some grid has texts for all its ranks, in micro-batches of a size that may be.
absl::Status CheckBatch(const Space& space, const Totals& totals) {
  Space of_batch = {.tunes_micro_batch = space.tunes_micro_batch,
                    .min_micro_batch = space.min_micro_batch,
                    .max_micro_batch = space.max_micro_batch,
                    .tensor = space.tensor,
                    .context = space.context,
                    .pipeline = space.pipeline};
  if (!PointsOf(of_batch, totals).empty()) return absl::OkStatus();
  std::string message =
      absl::StrCat("a step has ", totals.batch,
                   " texts, which cannot be dealt to the data ranks of ", totals.ranks, " ranks");
  if (space.tunes_micro_batch) {
    absl::StrAppend(&message, " in micro-batches of ", space.min_micro_batch, " to ",
                    space.max_micro_batch);
  }
  return absl::InvalidArgumentError(message);
}

}  // namespace

absl::StatusOr<Json> ParseConfigText(absl::string_view text) {
  BRIGADE_RETURN_IF_ERROR(checkpoint::ParseJson(text).status());
  Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError("the config is no JSON object");
  return config;
}

void AddValues(Dimension dimension, const Json& config, const gpt::ModelOptions& model,
               const Totals& totals, const train::AutotuningOptions& options, Space& space) {
  switch (dimension) {
    case Dimension::kStage:
      space.stages = {0, 1, 2, 3};
      return;
    case Dimension::kMicroBatch:
      space.tunes_micro_batch = true;
      space.min_micro_batch = options.min_micro_batch;
      space.max_micro_batch = options.max_micro_batch;
      return;
    case Dimension::kBucket: {
      // Buckets do not cross layers: one for the largest layer, and fractions of it.
      int64_t largest = 1;
      for (const zero::UnitSpec& unit : gpt::SpecOf(model)) {
        int64_t size = 0;
        for (const zero::ParameterSpec& parameter : unit.parameters) size += parameter.size;
        largest = std::max(largest, size);
      }
      constexpr int64_t kSmallest = 4096;
      const auto whole = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(largest)));
      for (const int64_t part : {1, 4, 16}) {
        const int64_t bucket = std::max(whole / part, kSmallest);
        if (space.buckets.empty() || space.buckets.back() != bucket) {
          space.buckets.push_back(bucket);
        }
      }
      return;
    }
    case Dimension::kLiveUnits:
      for (const int units : {1, 2, 4}) {
        if (units <= model.layers + 2) space.live_units.push_back(units);
      }
      return;
    case Dimension::kAlgorithm: {
      const Json* const reduction = FindGiven(config, "brigade.reduction");
      const bool once = reduction == nullptr || *reduction == Json("rounded_once");
      const bool has_nodes = FindGiven(config, "brigade.topology") != nullptr ||
                             FindGiven(config, "brigade.ranks_per_node") != nullptr;
      // What the sums' rounding allows; others are refused.
      space.algorithms =
          once ? std::vector<std::string>{"direct", "parameter_server"}
               : std::vector<std::string>{"direct",           "ring",        "bidirectional_ring",
                                          "halving_doubling", "double_tree", "parameter_server"};
      if (!once && has_nodes) space.algorithms.push_back("hierarchical");
      return;
    }
    case Dimension::kRecompute:
      space.recompute = {"none", "selective", "block"};
      return;
    case Dimension::kOffload: {
      space.offload = {{}, {.optimizer = "cpu"}, {.optimizer = "cpu", .parameters = "cpu"}};
      const bool has_directory =
          FindGiven(config, "zero_optimization.offload_optimizer.nvme_path") != nullptr ||
          FindGiven(config, "brigade.file_directory") != nullptr;
      if (!has_directory) return;
      space.offload.push_back({.optimizer = "nvme"});
      space.offload.push_back({.optimizer = "nvme", .parameters = "cpu"});
      space.offload.push_back({.optimizer = "nvme", .parameters = "nvme"});
      return;
    }
    case Dimension::kTensor:
      space.tensor = AxisOf(totals);
      return;
    case Dimension::kContext:
      space.context = AxisOf(totals);
      return;
    case Dimension::kPipeline:
      space.pipeline = AxisOf(totals);
      return;
  }
}

absl::StatusOr<TuningSetup> SetupOf(absl::string_view text, const gpt::ModelOptions& model,
                                    const SetupFlags& flags) {
  TuningSetup setup;
  BRIGADE_ASSIGN_OR_RETURN(setup.config, ParseConfigText(text));
  const Json& config = setup.config;
  BRIGADE_ASSIGN_OR_RETURN(setup.options, OptionsOf(config, flags.ranks));
  Totals& totals = setup.totals;
  totals.ranks = flags.ranks;
  const auto axis = [&](int flag, std::initializer_list<absl::string_view> keys) {
    const int64_t said = flag > 0 ? flag : FirstOf(config, keys);
    return static_cast<int>(std::clamp<int64_t>(said, 1, 1 << 15));
  };
  totals.tensor = axis(flags.tensor, {"tensor_parallel.autotp_size", "tensor_parallel.tp.tp_size",
                                      "tensor_parallel.tensor_parallel.tp_size"});
  totals.context = axis(flags.context, {"sequence_parallel_size"});
  totals.pipeline = axis(flags.pipeline, {"pipeline.stages"});
  const int64_t of_text = int64_t{totals.tensor} * totals.context * totals.pipeline;
  if (totals.ranks % of_text != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--ranks is ", totals.ranks, ", which cannot be shared out by tensor ", totals.tensor,
        " x context ", totals.context, " x pipeline ", totals.pipeline));
  }
  totals.batch = flags.batch > 0 ? flags.batch : NumberAt(config, "train_batch_size");
  if (totals.batch <= 0) {
    const int64_t micro = NumberAt(config, "train_micro_batch_size_per_gpu");
    const int64_t passes = NumberAt(config, "gradient_accumulation_steps");
    if (micro <= 0) {
      return absl::InvalidArgumentError(
          "train_batch_size is not given as a number of texts: tuning leaves the batch of a step "
          "as it is; write it, or "
          "give --batch");
    }
    const double batch = static_cast<double>(micro) *
                         static_cast<double>(std::max<int64_t>(passes, 1)) *
                         static_cast<double>(totals.ranks / of_text);
    totals.batch = static_cast<int64_t>(std::min(batch, static_cast<double>(kMost)));
  }
  if (totals.batch >= kMost) {
    return absl::InvalidArgumentError("a step has 2^53 texts or more; it must have fewer");
  }
  if (FindGiven(config, "zero_optimization.stage") != nullptr) {
    totals.stage = static_cast<int>(
        std::min<int64_t>(NumberAt(config, "zero_optimization.stage"), zero::kStages - 1));
  }
  for (const Dimension each : kAllDimensions) {
    if (Contains(flags.given, each) || Contains(flags.kept, each)) continue;
    const bool of_fast = each == Dimension::kStage || each == Dimension::kMicroBatch;
    const bool wanted = Contains(flags.tuned, each);
    if (!wanted &&
        (IsGiven(config, each) || (setup.options.fast && !of_fast && !IsAuto(config, each)))) {
      continue;
    }
    setup.tuned.push_back(each);
    AddValues(each, config, model, totals, setup.options, setup.space);
  }
  if (setup.tuned.empty()) {
    return absl::InvalidArgumentError(
        "nothing is to be tuned: the config has values for all; write \"auto\" for some, or give "
        "--tune=all");
  }
  BRIGADE_RETURN_IF_ERROR(CheckBatch(setup.space, totals));
  return setup;
}

absl::StatusOr<gpt::ModelOptions> ParseModel(absl::string_view text) {
  struct Named {
    absl::string_view name;
    int64_t layers, width, heads;
  };
  constexpr Named kNamed[] = {{"gpt2", 12, 768, 12},
                              {"gpt2-medium", 24, 1024, 16},
                              {"gpt2-large", 36, 1280, 20},
                              {"gpt2-xl", 48, 1600, 25}};
  gpt::ModelOptions model;
  bool is_known = false;
  for (const Named& named : kNamed) {
    if (named.name != text) continue;
    model = {.layers = named.layers, .heads = named.heads, .width = named.width, .context = 1024};
    is_known = true;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(text, 'x');
  if (!is_known) {
    is_known = parts.size() == 4 && absl::SimpleAtoi(parts[0], &model.layers) &&
               absl::SimpleAtoi(parts[1], &model.width) &&
               absl::SimpleAtoi(parts[2], &model.heads) &&
               absl::SimpleAtoi(parts[3], &model.context);
  }
  if (!is_known) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text,
                     "\" is neither gpt2, gpt2-medium, gpt2-large or gpt2-xl nor "
                     "LAYERSxWIDTHxHEADSxCONTEXT, as 4x128x4x128"));
  }
  BRIGADE_RETURN_IF_ERROR(gpt::Validate(model));
  return model;
}

}  // namespace brigade::tune
