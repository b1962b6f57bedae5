// Prints what others' estimators say of a model's memory, beside the paper's formula:
// bazel run //tune:estimate_memory -- --params=7.5B --gpus=64 --largest_layer=200M

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/command_line.h"
#include "brigade/tune/estimates.h"
#include "brigade/zero/plan/memory_model.h"

ABSL_FLAG(brigade::device::Count, params, {7'500'000'000},
          "parameters of the model: 7.5B, 350M or 7.5e9");
ABSL_FLAG(std::optional<brigade::device::Count>, largest_layer, std::nullopt,
          "parameters of its largest layer; default: 200M, or all of a smaller model");
ABSL_FLAG(int, gpus, 64, "of each node");
ABSL_FLAG(int, nodes, 1, "of the training");

namespace brigade::tune {
namespace {

// Of the paper's example.
constexpr device::Count kLargestLayer = {200'000'000};

absl::Status Main() {
  const int64_t params = absl::GetFlag(FLAGS_params).value;
  const int64_t layer = absl::GetFlag(FLAGS_largest_layer)
                            .value_or(device::Count{std::min(kLargestLayer.value, params)})
                            .value;
  const EstimatedModel model = {.total_params = params,
                                .largest_layer_params = layer,
                                .num_gpus_per_node = absl::GetFlag(FLAGS_gpus),
                                .num_nodes = absl::GetFlag(FLAGS_nodes)};
  constexpr int kMost = 1 << 20;
  if (model.num_gpus_per_node < 1 || model.num_gpus_per_node > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpus is ", model.num_gpus_per_node, "; it must be 1 to ", kMost));
  }
  if (model.num_nodes < 1 || model.num_nodes > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("--nodes is ", model.num_nodes, "; it must be 1 to ", kMost));
  }
  if (params < 1) return absl::InvalidArgumentError("--params is 0; it must be at least 1");
  if (layer > params) {
    return absl::InvalidArgumentError(
        "--largest_layer has more parameters than the model (--params)");
  }
  constexpr double kGiga = 1e9;
  absl::PrintF("GB (10^9) of a GPU, without activations\n%-6s %10s %22s %15s %11s\n", "stage",
               "ours", "DeepSpeed's estimator", "its autotuner", "Accelerate");
  for (int stage = 0; stage <= 3; ++stage) {
    const EstimatedBytes theirs = stage == 3 ? estimate_zero3_model_states_mem_needs(model, {})
                                             : estimate_zero2_model_states_mem_needs(model, {});
    absl::PrintF(
        "%-6d %10.1f %22s %15.1f %11.1f\n", stage,
        zero::PaperBytes(static_cast<double>(model.total_params), model.total_gpus(), stage) /
            kGiga,
        stage == 0 ? "-" : absl::StrFormat("%.1f", static_cast<double>(theirs.gpu) / kGiga),
        static_cast<double>(AutotunerBytes(model.total_params, model.total_gpus(), stage)) / kGiga,
        static_cast<double>(AccelerateBytes(model.total_params)) / kGiga);
  }
  absl::PrintF("\nestimate_zero2_model_states_mem_needs_all_cold:\n%s",
               estimate_zero2_model_states_mem_needs_all_cold(model));
  absl::PrintF("\nestimate_zero3_model_states_mem_needs_all_cold:\n%s",
               estimate_zero3_model_states_mem_needs_all_cold(model));
  return absl::OkStatus();
}

}  // namespace
}  // namespace brigade::tune

int main(int argc, char** argv) {
  return brigade::device::RunProgram(
      argc, argv, "What others' estimators say of a model's memory, beside ours.",
      brigade::tune::Main);
}
