#include "brigade/tune/estimates.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace brigade::tune {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr double kMega = 1e6;

// The largest number of more than that.
int64_t Truncated(double bytes) {
  constexpr double kMost = 0x1p63;
  return bytes >= kMost ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(bytes);
}

std::string Heading(const EstimatedModel& model, bool has_layer) {
  std::string text = absl::StrFormat(
      "Estimated memory needed for params, optim states and gradients for a:\n"
      "HW: Setup with %d node%s, %d GPU%s per node.\n"
      "SW: Model with %.0fM total params%s.\n  per CPU  |  per GPU |   Options\n",
      model.num_nodes, model.num_nodes > 1 ? "s" : "", model.num_gpus_per_node,
      model.num_gpus_per_node > 1 ? "s" : "", static_cast<double>(model.total_params) / kMega,
      has_layer ? absl::StrFormat(", %.0fM largest layer params",
                                  static_cast<double>(model.largest_layer_params) / kMega)
                : "");
  return text;
}

std::string Row(const EstimatedBytes& bytes, const std::string& options) {
  return absl::StrFormat("%8.2fGB | %6.2fGB | %s\n", static_cast<double>(bytes.cpu) / kGib,
                         static_cast<double>(bytes.gpu) / kGib, options);
}

const char* Device(bool is_cpu) { return is_cpu ? "cpu " : "none"; }

}  // namespace

EstimatedBytes estimate_zero2_model_states_mem_needs(const EstimatedModel& model,
                                                     const EstimateOptions& options) {
  const auto params = static_cast<double>(model.total_params);
  const double factor = model.additional_buffer_factor;
  if (options.cpu_offload) {
    const auto gpus = static_cast<double>(model.total_gpus());
    return {.cpu = Truncated(params * std::max(4 * gpus, 16.0) * factor),
            .gpu = 2 * model.total_params};
  }
  return {.cpu = Truncated(params * 4 * model.num_gpus_per_node * factor),
          .gpu = 2 * model.total_params +
                 Truncated(18 * params / static_cast<double>(model.total_gpus()))};
}

EstimatedBytes estimate_zero3_model_states_mem_needs(const EstimatedModel& model,
                                                     const EstimateOptions& options) {
  const auto params = static_cast<double>(model.total_params);
  const auto gpus = static_cast<double>(model.total_gpus());
  const double factor = model.additional_buffer_factor;
  // A whole model on the host for each GPU of a node, before it is cut.
  const double whole = 4.0 * model.num_gpus_per_node;
  const int64_t layer = 4 * model.largest_layer_params;
  if (!options.cpu_offload) {
    const double made =
        options.zero_init ? static_cast<double>(model.largest_layer_params) : params;
    return {.cpu = Truncated(made * whole * factor), .gpu = layer + Truncated(18 * params / gpus)};
  }
  const double of_states = (options.cpu_offload_params ? 18.0 : 16.0) / model.num_nodes;
  const double on_host = options.zero_init ? of_states : std::max(whole, of_states);
  return {.cpu = Truncated(params * on_host * factor),
          .gpu = layer + (options.cpu_offload_params ? 0 : Truncated(2 * params / gpus))};
}

std::string estimate_zero2_model_states_mem_needs_all_cold(const EstimatedModel& model) {
  std::string text = Heading(model, /*has_layer=*/false);
  for (const bool offloads : {true, false}) {
    absl::StrAppend(&text,
                    Row(estimate_zero2_model_states_mem_needs(model, {.cpu_offload = offloads}),
                        absl::StrCat("offload_optimizer=", Device(offloads))));
  }
  return text;
}

std::string estimate_zero3_model_states_mem_needs_all_cold(const EstimatedModel& model) {
  std::string text = Heading(model, /*has_layer=*/true);
  for (const auto& [optimizer, params] : {std::pair(true, true), {true, false}, {false, false}}) {
    for (const bool zero_init : {true, false}) {
      const EstimateOptions options = {
          .cpu_offload = optimizer, .cpu_offload_params = params, .zero_init = zero_init};
      absl::StrAppend(&text, Row(estimate_zero3_model_states_mem_needs(model, options),
                                 absl::StrCat("offload_param=", Device(params),
                                              ", offload_optimizer=", Device(optimizer),
                                              ", zero_init=", zero_init ? 1 : 0)));
    }
  }
  return text;
}

EstimatedModel CountOf(const LiveModel& model, int num_gpus_per_node, int num_nodes) {
  const std::vector<int64_t>& layers = model.layer_params;
  return {
      .total_params = std::accumulate(layers.begin(), layers.end(), int64_t{0}),
      .largest_layer_params = layers.empty() ? 0 : *std::max_element(layers.begin(), layers.end()),
      .num_gpus_per_node = num_gpus_per_node,
      .num_nodes = num_nodes};
}

std::string estimate_zero2_model_states_mem_needs_all_live(const LiveModel& model,
                                                           int num_gpus_per_node, int num_nodes) {
  return estimate_zero2_model_states_mem_needs_all_cold(
      CountOf(model, num_gpus_per_node, num_nodes));
}

std::string estimate_zero3_model_states_mem_needs_all_live(const LiveModel& model,
                                                           int num_gpus_per_node, int num_nodes) {
  return estimate_zero3_model_states_mem_needs_all_cold(
      CountOf(model, num_gpus_per_node, num_nodes));
}

int64_t AccelerateBytes(int64_t total_params) {
  constexpr int64_t kWeights = 4, kGradients = 6, kStates = 8;
  return std::max({kWeights, kGradients, kStates}) * total_params;
}

int64_t AutotunerBytes(int64_t total_params, int64_t total_gpus, int stage) {
  const auto params = static_cast<double>(total_params);
  const auto shared = [&](double bytes, bool is_shared) {
    return params * bytes / (is_shared ? static_cast<double>(total_gpus) : 1.0);
  };
  return Truncated(shared(2, stage >= 3) + shared(2, stage >= 2) + shared(16, stage >= 1));
}

}  // namespace brigade::tune
