#ifndef BRIGADE_TUNE_ESTIMATES_H_
#define BRIGADE_TUNE_ESTIMATES_H_

// What others' estimators would say of a model's memory, to print it beside ours: by their
// formulas, with their names. They know neither buckets nor activations, and one of the model's
// numbers of parameters.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace brigade::tune {

// The model and the machine, as the estimators take them.
struct EstimatedModel {
  int64_t total_params = 0;
  // Of the layer with most of them: ZeRO-3 has one whole.
  int64_t largest_layer_params = 0;
  int num_gpus_per_node = 1;
  int num_nodes = 1;
  // Of the host's memory.
  double additional_buffer_factor = 1.5;

  int64_t total_gpus() const { return int64_t{num_gpus_per_node} * num_nodes; }
};

struct EstimateOptions {
  // offload_optimizer and offload_param on the host.
  bool cpu_offload = false;
  bool cpu_offload_params = false;
  // Parameters are cut as they are made: no rank has all of them on its host first.
  bool zero_init = true;
};

// In bytes: of the host of one node, and of one GPU.
struct EstimatedBytes {
  int64_t cpu = 0;
  int64_t gpu = 0;

  friend bool operator==(const EstimatedBytes&, const EstimatedBytes&) = default;
};

// DeepSpeed's, of stages 1 and 2 and of stage 3: 2 P + 18 P / N, or 2 P with the optimizer on the
// host; 4 L + 18 P / N, 4 L + 2 P / N, or 4 L with the weights there too, for P parameters, L of
// the largest layer, and N GPUs. 18 has a gradient in fp32 that Brigade does not keep.
// Source: deepspeed/runtime/zero/stage_1_and_2.py and stage3.py.
EstimatedBytes estimate_zero2_model_states_mem_needs(const EstimatedModel& model,
                                                     const EstimateOptions& options);
EstimatedBytes estimate_zero3_model_states_mem_needs(const EstimatedModel& model,
                                                     const EstimateOptions& options);

// The tables that these print of a model that is known by its numbers (cold), all options of them;
// and of one that is there (live), whose numbers are counted first. GB is 2^30 bytes, as there.
std::string estimate_zero2_model_states_mem_needs_all_cold(const EstimatedModel& model);
std::string estimate_zero3_model_states_mem_needs_all_cold(const EstimatedModel& model);

// Parameters of each layer of a model.
struct LiveModel {
  std::vector<int64_t> layer_params;
};
std::string estimate_zero2_model_states_mem_needs_all_live(const LiveModel& model,
                                                           int num_gpus_per_node = 1,
                                                           int num_nodes = 1);
std::string estimate_zero3_model_states_mem_needs_all_live(const LiveModel& model,
                                                           int num_gpus_per_node = 1,
                                                           int num_nodes = 1);
EstimatedModel CountOf(const LiveModel& model, int num_gpus_per_node, int num_nodes);

// Accelerate's `estimate-memory` of training by Adam: 4 P of weights, 6 P of gradients, 8 P of
// optimizer state; the largest of them is its answer. Of one GPU, whatever their number.
int64_t AccelerateBytes(int64_t total_params);

// What DeepSpeed's autotuner takes the states of a model in 16 bits for: 20 P in stage 0. Of these
// N GPUs share 16 from stage 1 on, 2 more (gradients) from stage 2 on, and the last 2 in stage 3.
// Source: deepspeed/autotuning/autotuner.py.
int64_t AutotunerBytes(int64_t total_params, int64_t total_gpus, int stage);

}  // namespace brigade::tune

#endif  // BRIGADE_TUNE_ESTIMATES_H_
