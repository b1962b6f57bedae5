// Prints what a rank needs to train a GPT, with its activations, and what less of them costs:
// bazel run //examples/gpt:memory_model -- --layers=12 --width=768 --heads=12 --context=1024

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/command_line.h"
#include "brigade/device/counted.h"
#include "brigade/device/memory_stats.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/recompute/curve.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/schedule.h"
#include "brigade/replicas/options.h"
#include "brigade/replicas/round_plan.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/optimizer_words.h"
#include "brigade/zero/plan/plan.h"

ABSL_FLAG(int64_t, layers, 4, "of the model");
ABSL_FLAG(int64_t, width, 128, "of the model");
ABSL_FLAG(int64_t, heads, 4, "of the model");
ABSL_FLAG(int64_t, context, 128, "bytes that the model sees at once");
ABSL_FLAG(int64_t, batch, 4, "texts of a micro-batch on each rank");
ABSL_FLAG(brigade::precision::DType, precision, brigade::precision::DType::kFloat16,
          "fp32, fp16 or bf16");
ABSL_FLAG(int, ranks, 4, "of the training");
ABSL_FLAG(int, shard_ranks, 0, "ranks that share a state, in groups that have one each; 0: all");
ABSL_FLAG(int, replicas, 0,
          "copies that update locally, in rounds with an outer momentum; 0: there are none");
ABSL_FLAG(int, replica_fragments, 1, "with --replicas: parts of the weights, each with its round");
ABSL_FLAG(std::string, optimizer, "adam",
          "adafactor, adam, adam8 (moments of 8 bits), lamb, lion, muon, sgd with momentum, "
          "one_bit_adam, "
          "one_bit_lamb or zero_one_adam");
ABSL_FLAG(std::string, gradient_compression, "none",
          "how the ranks of a replica, or groups of --shard_ranks, exchange gradients: none, "
          "one_bit, power_sgd (of rank 4) or top_k (a hundredth)");
ABSL_FLAG(int, points, 100, "of the curve at most");

namespace brigade::gpt {
namespace {

constexpr double kMega = 1e6;

void PrintRow(const std::string& name, const recompute::CurvePoint& point,
              const recompute::Plan& none) {
  absl::PrintF("%-14s %16d %12.3f %9.2f %% %9.2f %%\n", name, point.peak_bytes,
               static_cast<double>(point.peak_bytes) / kMega,
               100 * static_cast<double>(point.peak_bytes) / static_cast<double>(none.peak_bytes),
               100 * point.time / none.time);
}

// The ranks of a replica in groups that have a state each.
struct Sharing {
  int ranks = 1;
  int groups = 1;
  std::optional<replicas::OuterOptions> outer = {};
};

// InvalidArgument unless --replicas divides --ranks, and --shard_ranks the ranks of each.
absl::StatusOr<Sharing> SharingOfFlags() {
  const auto invalid = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(what...));
  };
  const int ranks = absl::GetFlag(FLAGS_ranks), count = absl::GetFlag(FLAGS_replicas);
  const int shard_ranks = absl::GetFlag(FLAGS_shard_ranks);
  if (ranks < 1) return invalid("--ranks is ", ranks, "; it must be at least 1");
  if (count < 0 || (count > 0 && ranks % count != 0)) {
    return invalid("--replicas is ", count, ", which does not divide ", ranks, " ranks");
  }
  const int of_replica = count == 0 ? ranks : ranks / count;
  if (shard_ranks < 0 || (shard_ranks > 0 && of_replica % shard_ranks != 0)) {
    return invalid("--shard_ranks is ", shard_ranks, ", which does not divide ", of_replica,
                   " ranks");
  }
  Sharing sharing = {.ranks = shard_ranks == 0 ? of_replica : shard_ranks};
  sharing.groups = of_replica / sharing.ranks;
  if (count == 0) return sharing;
  sharing.outer = replicas::OuterOptions{.fragments = absl::GetFlag(FLAGS_replica_fragments)};
  BRIGADE_RETURN_IF_ERROR(replicas::Validate(*sharing.outer));
  return sharing;
}

absl::StatusOr<zero::Plan> ZeroPlanOf(const ModelOptions& model, const zero::ZeroOptions& options,
                                      const Sharing& sharing) {
  return zero::Plan::Create(
      SpecOf(model),
      {sharing.ranks, options.dtype, options.bucket_elements, options.tied_apart, sharing.groups,
       optim::TensorTile(options.optimizer.kind), optim::CodesOf(options.optimizer)});
}

// What a rank has beside activations: of ZeRO, and of rounds.
absl::StatusOr<std::vector<zero::MemoryTerm>> TermsOf(const zero::Plan& plan,
                                                      const zero::ZeroOptions& options,
                                                      const Sharing& sharing) {
  std::vector<zero::MemoryTerm> terms = zero::MemoryOf(plan, options);
  if (!sharing.outer.has_value()) return terms;
  BRIGADE_ASSIGN_OR_RETURN(const auto rounds, replicas::MemoryOf(plan, options, *sharing.outer));
  terms.insert(terms.end(), rounds.begin(), rounds.end());
  return terms;
}

// Of local steps there is no one master for rounds.
bool FitStage(const zero::Plan& plan, const Sharing& sharing, zero::ZeroOptions& options) {
  const bool fits = zero::FitExchanges(plan, options);
  if (sharing.outer.has_value()) options.optimizer.zero_one.local_step_clipper = 1;
  return fits;
}

// By stage and purpose, as the trainer's table of memory has them.
absl::Status PrintPurposes(const ModelOptions& model, zero::ZeroOptions options,
                           const Sharing& sharing) {
  using device::Purpose;
  constexpr Purpose kPurposes[] = {Purpose::kParameters, Purpose::kGradients,
                                   Purpose::kOptimizerState};
  BRIGADE_ASSIGN_OR_RETURN(const zero::Plan plan, ZeroPlanOf(model, options, sharing));
  absl::PrintF("\nThe same rank by purpose, in MB\n%-14s", "");
  for (const Purpose purpose : kPurposes) {
    absl::PrintF(" %15s", std::string(device::ToString(purpose)));
  }
  absl::PrintF("\n");
  for (options.stage = 0; options.stage < zero::kStages; ++options.stage) {
    if (!FitStage(plan, sharing, options)) continue;
    BRIGADE_RETURN_IF_ERROR(zero::Validate(options));
    BRIGADE_ASSIGN_OR_RETURN(const auto terms, TermsOf(plan, options, sharing));
    absl::PrintF("%-14s", absl::StrCat("stage ", options.stage));
    for (const Purpose purpose : kPurposes) {
      const auto bytes = static_cast<double>(zero::Total(terms, device::Tier::kDevice, purpose));
      absl::PrintF(" %15.3f", bytes / kMega);
    }
    absl::PrintF("\n");
  }
  return absl::OkStatus();
}

// Everything that zero/ has on the device in each stage, and the activations of a plan.
absl::Status PrintStages(const ModelOptions& model, zero::ZeroOptions options,
                         const Sharing& sharing, const std::string& name,
                         const recompute::Chain& chain, const recompute::Plan& plan) {
  BRIGADE_ASSIGN_OR_RETURN(const recompute::Schedule schedule, recompute::Place(chain, plan));
  options.backward_units = schedule.BackwardUses();
  BRIGADE_ASSIGN_OR_RETURN(const zero::Plan parameters, ZeroPlanOf(model, options, sharing));
  absl::PrintF("%-14s", name);
  for (options.stage = 0; options.stage < zero::kStages; ++options.stage) {
    if (!FitStage(parameters, sharing, options)) {
      absl::PrintF(" %12s", "-");
      continue;
    }
    BRIGADE_RETURN_IF_ERROR(zero::Validate(options));
    BRIGADE_ASSIGN_OR_RETURN(const auto terms, TermsOf(parameters, options, sharing));
    const int64_t bytes = zero::Total(terms, device::Tier::kDevice) + plan.peak_bytes;
    absl::PrintF(" %12.3f", static_cast<double>(bytes) / kMega);
  }
  absl::PrintF("\n");
  return absl::OkStatus();
}

absl::Status Main() {
  const ModelOptions model = {absl::GetFlag(FLAGS_layers), absl::GetFlag(FLAGS_heads),
                              absl::GetFlag(FLAGS_width), absl::GetFlag(FLAGS_context)};
  BRIGADE_RETURN_IF_ERROR(Validate(model));
  zero::ZeroOptions options;
  options.dtype = absl::GetFlag(FLAGS_precision);
  // As the trainer has it.
  options.tied_apart = true;
  const int64_t batch = absl::GetFlag(FLAGS_batch);
  constexpr int64_t kMostTexts = 1 << 20;
  if (batch < 1 || batch > kMostTexts) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch is ", batch, "; it must be 1 to ", kMostTexts));
  }
  BRIGADE_RETURN_IF_ERROR(zero::SetOptimizer(absl::GetFlag(FLAGS_optimizer), options));
  BRIGADE_RETURN_IF_ERROR(
      zero::SetGradientCompression(absl::GetFlag(FLAGS_gradient_compression), options));
  BRIGADE_ASSIGN_OR_RETURN(const Sharing sharing, SharingOfFlags());
  const int points = absl::GetFlag(FLAGS_points);
  if (points < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--points is ", points, "; it must be at least 2"));
  }
  const recompute::Chain chain = ActivationChain({model, batch, options.dtype});
  BRIGADE_RETURN_IF_ERROR(recompute::Validate(chain));
  BRIGADE_ASSIGN_OR_RETURN(const recompute::Plan none, recompute::PlanNone(chain));
  const std::vector<recompute::Policy> policies =
      recompute::PoliciesWithoutBudget(static_cast<int>(chain.stages.size()));

  absl::PrintF("GPT of %s, width %d, %s, context %d: %d parameters; micro-batches of %s, %s\n",
               device::Counted(model.layers, "layer"), model.width,
               device::Counted(model.heads, "head"), model.context, ParameterCount(model),
               device::Counted(batch, "text"), std::string(precision::ShortName(options.dtype)));
  absl::PrintF(
      "\nActivations of a pass, and its time by operations, beside those of none\n"
      "%-14s %16s %12s %11s %11s\n",
      "policy", "bytes", "MB (10^6)", "of bytes", "of time");
  for (const recompute::Policy& policy : policies) {
    BRIGADE_ASSIGN_OR_RETURN(const recompute::Plan plan, PlanOf(chain, policy));
    PrintRow(recompute::ToString(policy), {plan.peak_bytes, plan.time}, none);
  }
  absl::PrintF("\nThe least time within each budget\n");
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<recompute::CurvePoint> curve,
                           recompute::BudgetCurve(chain, points));
  for (const recompute::CurvePoint& point : curve) PrintRow("budget", point, none);

  absl::PrintF(
      "\nA rank of %d with its activations, in MB; besides there are the texts of the\n"
      "steps in flight, and the workspaces of the layers\n%-14s",
      absl::GetFlag(FLAGS_ranks), "policy");
  for (int stage = 0; stage < zero::kStages; ++stage) {
    absl::PrintF(" %12s", absl::StrCat("stage ", stage));
  }
  absl::PrintF("\n");
  for (const recompute::Policy& policy : policies) {
    BRIGADE_ASSIGN_OR_RETURN(const recompute::Plan plan, PlanOf(chain, policy));
    BRIGADE_RETURN_IF_ERROR(
        PrintStages(model, options, sharing, recompute::ToString(policy), chain, plan));
  }
  const recompute::Policy least = {.kind = recompute::Policy::Kind::kBudget,
                                   .budget_bytes = curve.back().peak_bytes};
  BRIGADE_ASSIGN_OR_RETURN(const recompute::Plan plan, PlanOf(chain, least));
  BRIGADE_RETURN_IF_ERROR(PrintStages(model, options, sharing, "least budget", chain, plan));
  return PrintPurposes(model, options, sharing);
}

}  // namespace
}  // namespace brigade::gpt

int main(int argc, char** argv) {
  absl::Status status = brigade::device::ParseFlags(
      argc, argv, "Device memory that training a GPT needs, and what less costs.");
  if (status.ok()) status = brigade::gpt::Main();
  if (!status.ok())
    std::fprintf(stderr, "memory_model: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
