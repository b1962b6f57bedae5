// Searches the ways to train a model on many ranks: bazel run //parallel:plan -- --params=175B
// --ranks=1024

#include <algorithm>
#include <cmath>
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
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/parallel/plan/configuration.h"
#include "brigade/parallel/plan/frontier_svg.h"
#include "brigade/parallel/plan/machine.h"
#include "brigade/parallel/plan/published.h"
#include "brigade/parallel/plan/search.h"
#include "brigade/parallel/plan/transformer.h"

ABSL_FLAG(brigade::device::Count, params, {175'000'000'000},
          "parameters: 175B, 350M or 1.75e11; a GPT of about that size");
ABSL_FLAG(std::string, model, "", "a published model by its name, in place of --params");
ABSL_FLAG(int64_t, layers, 0, "of the model; 0: its own");
ABSL_FLAG(int64_t, width, 0, "of the model; 0: its own");
ABSL_FLAG(int64_t, heads, 0, "of the model; 0: its own");
ABSL_FLAG(int64_t, context, 0, "positions of a text; 0: the model's own, or 2048");
ABSL_FLAG(int64_t, vocabulary, 0, "of the model; 0: its own, or 51200");

ABSL_FLAG(int, ranks, 1024, "devices");
ABSL_FLAG(std::string, machine, "hgx_h100", "dgx_a100, hgx_h100 or dgx2h_v100");
ABSL_FLAG(std::string, topology, "",
          "a JSON file as collectives/tuning/topology.h describes it; without, the machine's");
ABSL_FLAG(int, ranks_per_node, 0, "0: the machine's");
ABSL_FLAG(double, peak_teraflops, 0, "of a device, in 16 bits; 0: the machine's");
ABSL_FLAG(double, memory_gb, 0, "of a device, 1e9 bytes; 0: the machine's");
ABSL_FLAG(double, memory_gigabytes_per_s, 0, "of a device's memory; 0: the machine's");
ABSL_FLAG(double, reserved_gb, 4, "of the device's memory that the model does not have");

ABSL_FLAG(int64_t, batch, 2048, "texts of a step");
ABSL_FLAG(int, tensor, 0, "tensor ranks; 0: search");
ABSL_FLAG(int, context_parallel, 0, "context ranks; 0: search");
ABSL_FLAG(int, data, 0, "data ranks; 0: search");
ABSL_FLAG(int, pipeline, 0, "stages; 0: search");
ABSL_FLAG(std::string, schedule, "", "gpipe, 1f1b, interleaved:V, zb-h1 or zb-v; empty: search");
ABSL_FLAG(int, stage, -1, "of ZeRO, 0 to 3; -1: search");
ABSL_FLAG(std::string, recomputation, "", "none, selective or full; empty: search");
ABSL_FLAG(int, micro_batch, 0, "texts; 0: search");
ABSL_FLAG(
    int, shard_ranks, 0,
    "of the ranks with the same weights, those that share a state, in groups that have a whole "
    "one each; 0: search");
ABSL_FLAG(int64_t, replica_period, 0,
          "steps between two rounds of whole copies that update locally, which are searched then; "
          "0: there are none");
ABSL_FLAG(int, replicas, 0, "with --replica_period: such copies; 0: search");
ABSL_FLAG(bool, narrow_rounds, false, "rounds of replicas cross the wire in 16 bits");
ABSL_FLAG(bool, sequence_parallel, true, "with tensor ranks, rows between products are cut");
ABSL_FLAG(bool, fused_attention, true, "attention keeps no scores");
ABSL_FLAG(std::string, context_method, "ring", "ring or ulysses");
ABSL_FLAG(bool, fp32_sums, false, "sums over tensor ranks cross the wire in fp32");

ABSL_FLAG(int, top, 10, "configurations to print");
ABSL_FLAG(std::string, svg, "", "a file for the picture of time over memory");
ABSL_FLAG(bool, published, false, "in place of a search, predictions of published trainings");

namespace brigade::parallel {
namespace {

absl::StatusOr<Machine> ReadMachine(const std::string& name, const std::string& topology_file) {
  BRIGADE_ASSIGN_OR_RETURN(const NamedMachine named, MachineByName(name));
  const std::string path = topology_file.empty() ? device::DataFile(named.topology_file)
                                                 : device::FromUsersFolder(topology_file);
  BRIGADE_ASSIGN_OR_RETURN(const std::string text, device::ReadFile(path));
  Machine machine;
  BRIGADE_ASSIGN_OR_RETURN(machine.topology, collectives::TopologyFromJson(text));
  machine.device = named.device;
  machine.ranks_per_node = named.ranks_per_node;
  return machine;
}

absl::StatusOr<Machine> MachineOfFlags() {
  BRIGADE_ASSIGN_OR_RETURN(
      auto machine, ReadMachine(absl::GetFlag(FLAGS_machine), absl::GetFlag(FLAGS_topology)));
  const auto replace = [](double flag, double unit, double& value) {
    if (flag != 0) value = flag * unit;
  };
  replace(absl::GetFlag(FLAGS_peak_teraflops), 1e12, machine.device.peak_flops);
  replace(absl::GetFlag(FLAGS_memory_gb), 1e9, machine.device.memory_bytes);
  replace(absl::GetFlag(FLAGS_memory_gigabytes_per_s), 1e9, machine.device.memory_bytes_per_s);
  if (const int ranks = absl::GetFlag(FLAGS_ranks_per_node); ranks != 0) {
    machine.ranks_per_node = ranks;
  }
  BRIGADE_RETURN_IF_ERROR(Validate(machine));
  return machine;
}

absl::StatusOr<Transformer> ModelOfFlags() {
  const std::string name = absl::GetFlag(FLAGS_model);
  const auto given = [](int64_t flag, int64_t value) { return flag != 0 ? flag : value; };
  Transformer model;
  if (name.empty()) {
    const int64_t context = absl::GetFlag(FLAGS_context),
                  vocabulary = absl::GetFlag(FLAGS_vocabulary);
    BRIGADE_ASSIGN_OR_RETURN(
        model, TransformerOfParameters(static_cast<double>(absl::GetFlag(FLAGS_params).value),
                                       given(context, model.context),
                                       given(vocabulary, model.vocabulary)));
  } else {
    BRIGADE_ASSIGN_OR_RETURN(model, TransformerByName(name));
  }
  model.layers = given(absl::GetFlag(FLAGS_layers), model.layers);
  model.width = given(absl::GetFlag(FLAGS_width), model.width);
  model.heads = given(absl::GetFlag(FLAGS_heads), model.heads);
  model.context = given(absl::GetFlag(FLAGS_context), model.context);
  model.vocabulary = given(absl::GetFlag(FLAGS_vocabulary), model.vocabulary);
  BRIGADE_RETURN_IF_ERROR(Validate(model));
  return model;
}

absl::StatusOr<Execution> ExecutionOfFlags() {
  Execution execution;
  execution.batch = absl::GetFlag(FLAGS_batch);
  execution.sequence_parallel = absl::GetFlag(FLAGS_sequence_parallel);
  execution.fused_attention = absl::GetFlag(FLAGS_fused_attention);
  BRIGADE_ASSIGN_OR_RETURN(execution.context_method,
                           ParseContextMethod(absl::GetFlag(FLAGS_context_method)));
  execution.replica_period = absl::GetFlag(FLAGS_replica_period);
  execution.round_bytes = absl::GetFlag(FLAGS_narrow_rounds) ? 2 : 4;
  execution.tensor_sum_bytes = absl::GetFlag(FLAGS_fp32_sums) ? 4 : 2;
  execution.reserved_bytes = 1e9 * absl::GetFlag(FLAGS_reserved_gb);
  BRIGADE_RETURN_IF_ERROR(Validate(execution));
  return execution;
}

absl::StatusOr<SearchSpace> SpaceOfFlags(const Machine& machine, const Execution& execution) {
  SearchSpace space;
  space.ranks = absl::GetFlag(FLAGS_ranks);
  const auto fix = [](int flag, int unset, std::optional<int>& value) {
    if (flag != unset) value = flag;
  };
  fix(absl::GetFlag(FLAGS_tensor), 0, space.tensor);
  fix(absl::GetFlag(FLAGS_context_parallel), 0, space.context);
  fix(absl::GetFlag(FLAGS_data), 0, space.data);
  fix(absl::GetFlag(FLAGS_pipeline), 0, space.pipeline);
  fix(absl::GetFlag(FLAGS_stage), -1, space.zero_stage);
  fix(absl::GetFlag(FLAGS_micro_batch), 0, space.micro_batch);
  fix(absl::GetFlag(FLAGS_shard_ranks), 0, space.shard_ranks);
  fix(absl::GetFlag(FLAGS_replicas), 0, space.replicas);
  if (const std::string text = absl::GetFlag(FLAGS_schedule); !text.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(const auto schedule, ParseSchedule(text));
    space.schedules = {schedule};
  }
  if (const std::string text = absl::GetFlag(FLAGS_recomputation); !text.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(space.recomputation, ParseRecomputation(text));
  }
  space.memory_bytes = machine.device.memory_bytes - execution.reserved_bytes;
  BRIGADE_RETURN_IF_ERROR(Validate(space));
  return space;
}

// "  4  1  16  16 interleaved:3   1   8 none       1": in ZeRO's stage 1 8 ranks share a state.
constexpr char kConfigurationHead[] =
    "    t    c     d    p schedule       ZeRO of    recompute micro";
std::string ConfigurationRow(const Configuration& each) {
  return absl::StrFormat(
      "%5d%5d%6d%5d %-14s %4d %-5d %-9s %5d", each.grid.tensor, each.grid.context, each.grid.data,
      each.grid.pipeline, ToString(each.schedule), each.zero_stage,
      each.zero_stage == 0 ? 1 : ShardRanks(each), Name(each.recomputation), each.micro_batch);
}
// Behind it, where there may be replicas, how many, and the seconds of a step's part of a round.
constexpr char kReplicasHead[] = "  replicas  round";
std::string ReplicasRow(const Candidate& each) {
  return absl::StrFormat(" %9d%7.3f", each.configuration.replicas, each.time.round);
}

constexpr char kTimeHead[] = " seconds | compute  tensor context transfer  bubble    data  update";
std::string TimeRow(const StepTime& time) {
  return absl::StrFormat("%8.3f |%8.3f%8.3f%8.3f%9.3f%8.3f%8.3f%8.3f", time.total(), time.compute,
                         time.tensor, time.context, time.transfer, time.bubble, time.data,
                         time.optimizer);
}

constexpr char kMemoryHead[] = "   GB | weights gradients  state buffers activations";
std::string MemoryRow(const MemoryUse& memory) {
  return absl::StrFormat("%5.1f |%8.2f%10.2f%7.2f%8.2f%12.2f", memory.total() / 1e9,
                         memory.weights / 1e9, memory.gradients / 1e9, memory.optimizer_state / 1e9,
                         memory.buffers / 1e9, memory.activations / 1e9);
}

std::string Describe(const Transformer& model) {
  return absl::StrFormat("%s: %.4g parameters, %d layers of width %d, %d heads, context %d",
                         model.name, static_cast<double>(Parameters(model)), model.layers,
                         model.width, model.heads, model.context);
}

void PrintCounts(const SearchResult& result) {
  std::printf("%lld grids, of which are left out\n", static_cast<long long>(result.grids));
  for (const auto& [reason, count] : result.grids_left_out) {
    std::printf("%9lld %s\n", static_cast<long long>(count), reason.c_str());
  }
  std::printf("%lld configurations of the others, of which are left out\n",
              static_cast<long long>(result.configurations));
  for (const auto& [reason, count] : result.left_out) {
    std::printf("%9lld %s\n", static_cast<long long>(count), reason.c_str());
  }
  std::printf("%9zu are left\n", result.candidates.size());
}

absl::Status RunSearch() {
  BRIGADE_ASSIGN_OR_RETURN(const Machine machine, MachineOfFlags());
  BRIGADE_ASSIGN_OR_RETURN(const Transformer model, ModelOfFlags());
  BRIGADE_ASSIGN_OR_RETURN(const Execution execution, ExecutionOfFlags());
  BRIGADE_ASSIGN_OR_RETURN(const SearchSpace space, SpaceOfFlags(machine, execution));
  const int top = absl::GetFlag(FLAGS_top);
  if (top < 1)
    return absl::InvalidArgumentError(absl::StrCat("--top is ", top, "; it must be at least 1"));
  BRIGADE_ASSIGN_OR_RETURN(const auto result, Search(model, machine, execution, space));

  std::printf("%s\n%d x %s, batch %lld, %.0f GB of a rank to use\n\n", Describe(model).c_str(),
              space.ranks, machine.device.name.c_str(), static_cast<long long>(execution.batch),
              space.memory_bytes / 1e9);
  PrintCounts(result);
  const bool has_replicas = execution.replica_period > 0;
  std::printf("\n    %s%s  MFU%s\n", kConfigurationHead, kTimeHead,
              has_replicas ? kReplicasHead : "");
  const size_t count = std::min<size_t>(static_cast<size_t>(top), result.candidates.size());
  const double flops = ModelFlops(model, static_cast<double>(execution.batch), false,
                                  /*is_causal=*/execution.fused_attention);
  for (size_t i = 0; i < count; ++i) {
    const Candidate& each = result.candidates[i];
    std::printf("%3zu %s %s %3.0f%%%s\n", i + 1, ConfigurationRow(each.configuration).c_str(),
                TimeRow(each.time).c_str(),
                100 * flops / each.time.total() / space.ranks / machine.device.peak_flops,
                has_replicas ? ReplicasRow(each).c_str() : "");
  }
  std::printf("\n    %s\n", kMemoryHead);
  for (size_t i = 0; i < count; ++i) {
    std::printf("%3zu %s\n", i + 1, MemoryRow(result.candidates[i].memory).c_str());
  }
  const std::string svg = absl::GetFlag(FLAGS_svg);
  if (svg.empty()) return absl::OkStatus();
  const std::string title = absl::StrFormat("%s on %d %s, batch %d", model.name, space.ranks,
                                            machine.device.name, execution.batch);
  BRIGADE_ASSIGN_OR_RETURN(auto file, device::FileReplacement::Begin(device::FromUsersFolder(svg)));
  file.Write(FrontierSvg(result, space.memory_bytes, title));
  return file.Commit();
}

absl::Status PrintPublished() {
  std::printf("%-19s%-11s%6s%3s%4s%4s %-14s%-10s%5s  TFLOP/s:%10s%10s%8s  %% of its time: %s\n",
              "published in", "model", "ranks", "t", "d", "p", "schedule", "recompute", "micro",
              "published", "predicted", "error", "compute tensor transfer bubble data");
  double squares = 0, most = 0;
  int predictions = 0;
  for (const PublishedRun& run : PublishedRuns()) {
    BRIGADE_ASSIGN_OR_RETURN(const Machine machine, ReadMachine(run.machine, ""));
    BRIGADE_ASSIGN_OR_RETURN(const auto prediction, Predict(run, machine));
    const Configuration& configuration = prediction.candidate.configuration;
    const StepTime& time = prediction.candidate.time;
    const auto share = [&](double seconds) { return 100 * seconds / time.total(); };
    std::printf(
        "%-19s%-11s%6d%3d%4d%4d %-14s%-10s%5d  %8s%9.1f%s%10.1f%s%21.0f%7.0f%9.0f%7.0f%5.0f\n",
        run.source.c_str(), run.model.c_str(), run.space.ranks, configuration.grid.tensor,
        configuration.grid.data, configuration.grid.pipeline,
        ToString(configuration.schedule).c_str(),
        std::string(Name(configuration.recomputation)).c_str(), configuration.micro_batch,
        run.counts_recomputation ? "all" : "model's", run.teraflops, run.is_checked ? "*" : " ",
        prediction.teraflops,
        run.is_fitted ? "  fitted" : absl::StrFormat("%+7.1f%%", prediction.error_percent).c_str(),
        share(time.compute), share(time.tensor), share(time.transfer), share(time.bubble),
        share(time.data));
    if (run.is_fitted) continue;
    squares += prediction.error_percent * prediction.error_percent;
    most = std::max(most, std::abs(prediction.error_percent));
    ++predictions;
  }
  std::printf(
      "%d predictions: root of the mean square of their errors %.1f%%, the largest %.1f%%\n\n",
      predictions, std::sqrt(squares / predictions), most);

  BRIGADE_ASSIGN_OR_RETURN(const Machine v100, ReadMachine("dgx2h_v100", ""));
  BRIGADE_ASSIGN_OR_RETURN(const auto efficiencies, PredictTensorEfficiencies(v100));
  std::printf("Efficiency of tensor ranks (1909.08053, one node of V100, batch 8)\n");
  std::printf("%-11s%3s  published predicted\n", "model", "t");
  for (size_t i = 0; i < efficiencies.size(); ++i) {
    const PublishedTensorEfficiency& point = TensorEfficiencies()[i];
    std::printf("%-11s%3d %9.0f%% %8.1f%%\n", point.model.c_str(), point.tensor, point.percent,
                efficiencies[i]);
  }
  return absl::OkStatus();
}

absl::Status PrintScaling() {
  BRIGADE_ASSIGN_OR_RETURN(const Machine machine, MachineOfFlags());
  BRIGADE_ASSIGN_OR_RETURN(const Execution flags, ExecutionOfFlags());
  std::printf("\nPredictions for %s, nobody's measurements: the best of a search\n",
              machine.device.name.c_str());
  std::printf("%6s %-11s %6s %s%s  TFLOP/s\n", "ranks", "model", "batch", kConfigurationHead,
              kTimeHead);
  for (const ScalingPoint& point : ScalingPoints()) {
    BRIGADE_ASSIGN_OR_RETURN(const Transformer model, TransformerByName(point.model));
    Execution execution = flags;
    execution.batch = point.batch;
    SearchSpace space;
    space.ranks = point.ranks;
    space.memory_bytes = machine.device.memory_bytes - execution.reserved_bytes;
    BRIGADE_ASSIGN_OR_RETURN(const auto result, Search(model, machine, execution, space));
    const Candidate& best = result.candidates.front();
    const double flops = ModelFlops(model, static_cast<double>(point.batch), false,
                                    /*is_causal=*/execution.fused_attention);
    std::printf("%6d %-11s %6lld %s %s %8.0f\n", point.ranks, point.model.c_str(),
                static_cast<long long>(point.batch), ConfigurationRow(best.configuration).c_str(),
                TimeRow(best.time).c_str(), flops / best.time.total() / point.ranks / 1e12);
  }
  return absl::OkStatus();
}

absl::Status Main() {
  if (!absl::GetFlag(FLAGS_published)) return RunSearch();
  BRIGADE_RETURN_IF_ERROR(PrintPublished());
  return PrintScaling();
}

}  // namespace
}  // namespace brigade::parallel

int main(int argc, char** argv) {
  return brigade::device::RunProgram(
      argc, argv, "How to train a model on many devices, by a model of the machine.",
      brigade::parallel::Main);
}
