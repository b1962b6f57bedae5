// Prints what a rank needs to train a GPT, with its activations, and what less of them costs:
// bazel run //examples/gpt:memory_model -- --layers=12 --width=768 --heads=12 --context=1024

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/command_line.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/counted.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/recompute/curve.h"
#include "brigade/recompute/planner.h"
#include "brigade/recompute/schedule.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/plan.h"

ABSL_FLAG(int64_t, layers, 4, "of the model");
ABSL_FLAG(int64_t, width, 128, "of the model");
ABSL_FLAG(int64_t, heads, 4, "of the model");
ABSL_FLAG(int64_t, context, 128, "bytes that the model sees at once");
ABSL_FLAG(int64_t, batch, 4, "texts of a micro-batch on each rank");
ABSL_FLAG(brigade::precision::DType, precision, brigade::precision::DType::kFloat16,
          "fp32, fp16 or bf16");
ABSL_FLAG(int, ranks, 4, "of the training");
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

// Everything that zero/ has on the device in each stage, and the activations of a plan.
absl::Status PrintStages(const ModelOptions& model, zero::ZeroOptions options, int ranks,
                         const std::string& name, const recompute::Chain& chain,
                         const recompute::Plan& plan) {
  BRIGADE_ASSIGN_OR_RETURN(const recompute::Schedule schedule, recompute::Place(chain, plan));
  options.backward_units = schedule.BackwardUses();
  BRIGADE_ASSIGN_OR_RETURN(
      const zero::Plan parameters,
      zero::Plan::Create(SpecOf(model),
                         {ranks, options.dtype, options.bucket_elements, options.tied_apart}));
  absl::PrintF("%-14s", name);
  for (options.stage = 0; options.stage < zero::kStages; ++options.stage) {
    BRIGADE_RETURN_IF_ERROR(zero::Validate(options));
    const int64_t bytes =
        zero::Total(zero::MemoryOf(parameters, options), device::Tier::kDevice) + plan.peak_bytes;
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
  const int64_t batch = absl::GetFlag(FLAGS_batch);
  constexpr int64_t kMostTexts = 1 << 20;
  if (batch < 1 || batch > kMostTexts) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch is ", batch, "; it must be 1 to ", kMostTexts));
  }
  const int ranks = absl::GetFlag(FLAGS_ranks);
  if (ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks is ", ranks, "; it must be at least 1"));
  }
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
               Counted(model.layers, "layer"), model.width, Counted(model.heads, "head"),
               model.context, ParameterCount(model), Counted(batch, "text"),
               std::string(precision::ShortName(options.dtype)));
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
      ranks, "policy");
  for (int stage = 0; stage < zero::kStages; ++stage) {
    absl::PrintF(" %12s", absl::StrCat("stage ", stage));
  }
  absl::PrintF("\n");
  for (const recompute::Policy& policy : policies) {
    BRIGADE_ASSIGN_OR_RETURN(const recompute::Plan plan, PlanOf(chain, policy));
    BRIGADE_RETURN_IF_ERROR(
        PrintStages(model, options, ranks, recompute::ToString(policy), chain, plan));
  }
  const recompute::Policy least = {.kind = recompute::Policy::Kind::kBudget,
                                   .budget_bytes = curve.back().peak_bytes};
  BRIGADE_ASSIGN_OR_RETURN(const recompute::Plan plan, PlanOf(chain, least));
  return PrintStages(model, options, ranks, "least budget", chain, plan);
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
