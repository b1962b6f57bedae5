// Prints what a rank needs in each stage: bazel run //zero/plan:memory_model -- --params=7.5B
// --ranks=64

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/command_line.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/movement.h"
#include "brigade/zero/plan/optimizer_words.h"

ABSL_FLAG(brigade::device::Count, params, {7'500'000'000},
          "parameters of the model: 7.5B, 350M or 7.5e9");
ABSL_FLAG(std::vector<std::string>, ranks,
          std::vector<std::string>({"1", "4", "16", "64", "256", "1024"}),
          "numbers of ranks, separated by commas");
ABSL_FLAG(
    int, shard_ranks, 0,
    "ranks that share a state, in groups that have one each; more than there are, and 0: all");
ABSL_FLAG(int, units, 100, "layers, of one size, that the parameters are spread over");
ABSL_FLAG(brigade::precision::DType, dtype, brigade::precision::DType::kBFloat16,
          "of weights and gradients: fp32, fp16 or bf16");
ABSL_FLAG(
    std::string, optimizer, "adam",
    "adafactor, adam, adam8 (moments of 8 bits), lamb, lion, muon (all are matrices), sgd with "
    "momentum, one_bit_adam, one_bit_lamb or zero_one_adam");
ABSL_FLAG(std::string, gradient_compression, "none",
          "how ranks, or groups of --shard_ranks, exchange gradients: none, one_bit, power_sgd "
          "(of rank 4) or top_k (a hundredth)");
ABSL_FLAG(int, micro_batches, 1, "of a step");
ABSL_FLAG(int, live_units, 2, "layers in memory at once, where not all are");
ABSL_FLAG(std::string, offload, "none",
          "what is not kept on the device: none, optimizer, or all (weights too), in the stages "
          "that have it");
ABSL_FLAG(std::string, offload_to, "host", "where that is: host or file");

namespace brigade::zero {
namespace {

constexpr double kGiga = 1e9;

absl::StatusOr<ZeroOptions> OptionsOfFlags() {
  ZeroOptions options;
  options.dtype = absl::GetFlag(FLAGS_dtype);
  BRIGADE_RETURN_IF_ERROR(SetOptimizer(absl::GetFlag(FLAGS_optimizer), options));
  BRIGADE_RETURN_IF_ERROR(
      SetGradientCompression(absl::GetFlag(FLAGS_gradient_compression), options));
  const std::string offload = absl::GetFlag(FLAGS_offload);
  const std::string where = absl::GetFlag(FLAGS_offload_to);
  if (offload != "none" && offload != "optimizer" && offload != "all") {
    return absl::InvalidArgumentError(
        absl::StrCat("--offload is \"", offload, "\"; it must be none, optimizer or all"));
  }
  if (where != "host" && where != "file") {
    return absl::InvalidArgumentError(
        absl::StrCat("--offload_to is \"", where, "\"; it must be host or file"));
  }
  const device::Tier tier = where == "file" ? device::Tier::kFile : device::Tier::kHost;
  if (offload != "none") options.offload.optimizer_state = tier;
  if (offload == "all") options.offload.parameters = tier;
  // No file is made.
  options.offload.file.directory = std::string(".");
  options.micro_batches = absl::GetFlag(FLAGS_micro_batches);
  options.live_units = absl::GetFlag(FLAGS_live_units);
  return options;
}

// With the groups that so many ranks are. InvalidArgument unless --shard_ranks divides them.
absl::StatusOr<Plan> PlanOf(const ModelSpec& model, const ZeroOptions& options, int ranks) {
  const int wanted = absl::GetFlag(FLAGS_shard_ranks);
  const int shard_ranks = wanted <= 0 || wanted > ranks ? ranks : wanted;
  if (ranks % shard_ranks != 0 || wanted < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard_ranks is ", wanted, ", which does not divide ", ranks, " ranks"));
  }
  return Plan::Create(
      model,
      {shard_ranks, options.dtype, options.bucket_elements, options.tied_apart, ranks / shard_ranks,
       optim::TensorTile(options.optimizer.kind), optim::CodesOf(options.optimizer)});
}

// Whether the stage can have elsewhere what is asked for.
bool HasOffload(const ZeroOptions& options) {
  return !options.offload.enabled() || Validate(options).ok();
}

// The paper's formula, for 16 bits and Adam.
void PrintPaper(double params, const std::vector<int>& all_ranks) {
  std::printf("The ZeRO paper's table: GB (10^9 bytes) per rank for %g parameters\n", params);
  std::printf("%8s %12s %12s %12s %12s\n", "ranks", "stage 0", "stage 1", "stage 2", "stage 3");
  for (const int ranks : all_ranks) {
    std::printf("%8d", ranks);
    for (int stage = 0; stage < kStages; ++stage) {
      std::printf(" %12.2f", PaperBytes(params, ranks, stage) / kGiga);
    }
    std::printf("\n");
  }
}

absl::Status PrintPurposes(const ModelSpec& model, ZeroOptions options,
                           const std::vector<int>& all_ranks) {
  using device::Purpose;
  constexpr Purpose kPurposes[] = {Purpose::kParameters, Purpose::kGradients,
                                   Purpose::kOptimizerState, Purpose::kCommunication,
                                   Purpose::kScratch};
  std::printf("\nBrigade's, to the byte, by purpose: GB per rank\n%8s %6s", "ranks", "stage");
  for (const Purpose purpose : kPurposes) {
    std::printf(" %15s", std::string(device::ToString(purpose)).c_str());
  }
  std::printf(" %12s\n", "total");
  for (const int ranks : all_ranks) {
    BRIGADE_ASSIGN_OR_RETURN(auto plan, PlanOf(model, options, ranks));
    for (options.stage = 0; options.stage < kStages; ++options.stage) {
      if (!FitExchanges(plan, options) || !HasOffload(options)) continue;
      BRIGADE_RETURN_IF_ERROR(Validate(options));
      const std::vector<MemoryTerm> terms = MemoryOf(plan, options);
      std::printf("%8d %6d", ranks, options.stage);
      for (const Purpose purpose : kPurposes) {
        std::printf(" %15.3f",
                    static_cast<double>(Total(terms, device::Tier::kDevice, purpose)) / kGiga);
      }
      std::printf(" %12.3f\n", static_cast<double>(Total(terms, device::Tier::kDevice)) / kGiga);
    }
  }
  return absl::OkStatus();
}

absl::Status PrintTiers(const ModelSpec& model, ZeroOptions options,
                        const std::vector<int>& all_ranks) {
  std::printf("\nBy tier, and what moves in each step: GB per rank\n%8s %6s", "ranks", "stage");
  for (const char* const name :
       {"device", "host", "file", "to host", "from host", "from file", "to file"}) {
    std::printf(" %12s", name);
  }
  std::printf("\n");
  for (const int ranks : all_ranks) {
    BRIGADE_ASSIGN_OR_RETURN(auto plan, PlanOf(model, options, ranks));
    for (options.stage = 0; options.stage < kStages; ++options.stage) {
      if (!FitExchanges(plan, options) || !HasOffload(options)) continue;
      const std::vector<MemoryTerm> terms = MemoryOf(plan, options);
      const Movement moved = MovementOfStep(plan, options);
      std::printf("%8d %6d", ranks, options.stage);
      for (const int64_t bytes :
           {Total(terms, device::Tier::kDevice), Total(terms, device::Tier::kHost),
            Total(terms, device::Tier::kFile), moved.to_host, moved.from_host, moved.file_read,
            moved.file_written}) {
        std::printf(" %12.3f", static_cast<double>(bytes) / kGiga);
      }
      std::printf("\n");
    }
  }
  return absl::OkStatus();
}

absl::Status Main() {
  const auto params = static_cast<double>(absl::GetFlag(FLAGS_params).value);
  constexpr double kMostParameters = 1e15;
  if (params < 1 || params > kMostParameters) {
    return absl::InvalidArgumentError(
        absl::StrCat("--params is ", params, "; it must be 1 to ", kMostParameters));
  }
  std::vector<int> all_ranks;
  for (const std::string& text : absl::GetFlag(FLAGS_ranks)) {
    int ranks = 0;
    if (!absl::SimpleAtoi(text, &ranks) || ranks < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--ranks has \"", text, "\"; it must be numbers from 1 on, with commas between them"));
    }
    all_ranks.push_back(ranks);
  }
  const int units = absl::GetFlag(FLAGS_units);
  if (units < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("--units is ", units, "; it must be at least 1"));
  BRIGADE_ASSIGN_OR_RETURN(auto options, OptionsOfFlags());
  ModelSpec model;
  for (int u = 0; u < units; ++u) {
    const std::string name = absl::StrCat("unit", u);
    model.push_back({name, {{name, static_cast<int64_t>(params / units)}}, {}});
  }
  PrintPaper(params, all_ranks);
  BRIGADE_RETURN_IF_ERROR(PrintPurposes(model, options, all_ranks));
  return options.offload.enabled() ? PrintTiers(model, options, all_ranks) : absl::OkStatus();
}

}  // namespace
}  // namespace brigade::zero

int main(int argc, char** argv) {
  return brigade::device::RunProgram(argc, argv, "Device memory that training with ZeRO needs.",
                                     brigade::zero::Main);
}
