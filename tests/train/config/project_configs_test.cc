// Files of DeepSpeed's keys as they stand in public projects: what becomes of each of them here.
// The keys and values are those of the file that is named; order and layout are ours.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/config/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

struct File {
  // Repository and path.
  const char* source;
  const char* json;
  // As somebody would start it: ranks, and flags in place of those of the program around DeepSpeed.
  int ranks;
  StepFlags flags;
  // All refusals, in their order; empty: it is accepted.
  std::vector<std::string> refusals;
  // Of one that is accepted.
  std::vector<std::string> without_effect = {};
};

std::string NotFilled(const char* path, const char* advice) {
  return absl::StrCat(path, " is \"auto\", which nothing fills in here: ", advice);
}

const File kFiles[] = {
    {"deepspeedai/Megatron-DeepSpeed, "
     "examples_deepspeed/curriculum_learning/ds_zero_stage_1_config_baseline.json",
     R"({"train_batch_size": 512, "gradient_accumulation_steps": 1, "steps_per_print": 1,
         "zero_optimization": {"stage": 1},
         "optimizer": {"type": "Adam",
                       "params": {"lr": 0.00015, "max_grad_norm": 1.0, "betas": [0.9, 0.95]}},
         "gradient_clipping": 1.0,
         "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2,
                  "min_loss_scale": 1},
         "wall_clock_breakdown": false, "zero_allow_untested_optimizer": false})",
     8,
     {},
     {"optimizer.params.max_grad_norm is 1.0; it must be 0.0: gradient_clipping says it here"}},
    {"deepspeedai/Megatron-DeepSpeed, examples_deepspeed/universal_checkpointing/ds_config.json",
     R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 16, "steps_per_print": 1,
         "zero_optimization": {"stage": 1}, "bf16": {"enabled": true},
         "data_types": {"grad_accum_dtype": "fp32"}, "wall_clock_breakdown": false})",
     1,
     {.lr = 0.0003},
     {}},
    {"deepspeedai/Megatron-DeepSpeed, examples_deepspeed/finetune_hf_llama/ds_config.json",
     R"({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 16, "steps_per_print": 100,
         "zero_optimization": {"stage": 0}, "bf16": {"enabled": true}})",
     8,
     {},
     {"optimizer is not given; one is needed, like {\"type\": \"AdamW\", \"params\": {\"lr\": "
      "0.001}}; or --lr, for AdamW with that rate"}},
    {"huggingface/accelerate, examples/deepspeed_config_templates/zero_stage2_offload_config.json",
     R"({"fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000,
                  "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
         "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto",
                                                   "torch_adam": true, "adam_w_mode": true}},
         "scheduler": {"type": "WarmupDecayLR",
                       "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                  "warmup_num_steps": "auto", "total_num_steps": "auto"}},
         "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu",
                                                                 "pin_memory": true},
                               "allgather_partitions": true, "allgather_bucket_size": 2e8,
                               "overlap_comm": true, "reduce_scatter": true,
                               "reduce_bucket_size": "auto", "contiguous_gradients": true},
         "gradient_accumulation_steps": 1, "gradient_clipping": "auto", "steps_per_print": 2000,
         "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
         "wall_clock_breakdown": false})",
     4,
     {},
     {NotFilled("gradient_clipping",
                "leave the key out for 0.0, or write a number, 0 or more, and finite as a float"),
      NotFilled("optimizer.params.lr",
                "give --lr, leave the key out for 0.001, or write a number, 0 or more, and finite "
                "as a float"),
      NotFilled("optimizer.params.weight_decay",
                "leave the key out for 0.0, or write a number, 0 or more, and finite as a float"),
      NotFilled("scheduler.params.total_num_steps",
                "give --steps, or write a whole number, 1 to 2^24"),
      NotFilled("scheduler.params.warmup_max_lr",
                "give --lr, leave the key out for 0.001, or write a number, 0 or more, and finite "
                "as a float"),
      NotFilled("scheduler.params.warmup_min_lr",
                "leave the key out for 0.0, or write a number, 0 or more, and finite as a float"),
      NotFilled("scheduler.params.warmup_num_steps",
                "leave the key out for 1000, or write a whole number, 0 to 2^24"),
      NotFilled("train_batch_size",
                "give --batch, leave the key out for what follows from the others, or write a "
                "whole number, 1 or more"),
      NotFilled("train_micro_batch_size_per_gpu",
                "give --batch, leave the key out for what follows from the others, or write a "
                "whole number, 1 to 2^20")}},
    {"hiyouga/LLaMA-Factory, examples/deepspeed/ds_z2_autotp_config.json",
     R"({"_comment": "supported models: see the tutorial",
         "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
         "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
         "zero_allow_untested_optimizer": true,
         "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
                  "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
         "bf16": {"enabled": "auto"},
         "zero_optimization": {"stage": 2, "allgather_partitions": true,
                               "allgather_bucket_size": 5e8, "overlap_comm": false,
                               "reduce_scatter": true, "reduce_bucket_size": 5e8,
                               "contiguous_gradients": true, "round_robin_gradients": true},
         "tensor_parallel": {"autotp_size": 2}})",
     4,
     {.batch = 16, .lr = 0.0001, .dtype = precision::DType::kBFloat16},
     {"_comment is \"supported models: see the tutorial\", a string; there is no such key",
      NotFilled("gradient_clipping",
                "leave the key out for 0.0, or write a number, 0 or more, and finite as a float")}},
    {"axolotl-ai-cloud/axolotl, deepspeed_configs/zero3_bf16_cpuoffload_all.json",
     R"({"zero_force_ds_cpu_optimizer": false, "zero_allow_untested_optimizer": true,
         "zero_optimization": {"stage": 3,
                               "offload_optimizer": {"device": "cpu", "pin_memory": true},
                               "offload_param": {"device": "cpu", "pin_memory": true},
                               "overlap_comm": true, "contiguous_gradients": true,
                               "sub_group_size": 0, "reduce_bucket_size": "auto",
                               "stage3_prefetch_bucket_size": "auto",
                               "stage3_param_persistence_threshold": "auto",
                               "max_live_parameters": 0, "max_reuse_distance": 0,
                               "gather_16bit_weights_on_model_save": true},
         "bf16": {"enabled": true}, "gradient_accumulation_steps": "auto",
         "gradient_clipping": "auto", "train_batch_size": "auto",
         "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false})",
     4,
     {.batch = 16, .lr = 0.0001},
     {NotFilled("gradient_clipping",
                "leave the key out for 0.0, or write a number, 0 or more, and finite as a float")}},
    {"lm-sys/FastChat, playground/deepspeed_config_s3.json",
     R"({"fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000,
                  "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
         "zero_optimization": {"stage": 3,
                               "offload_optimizer": {"device": "cpu", "pin_memory": true},
                               "offload_param": {"device": "cpu", "pin_memory": true},
                               "overlap_comm": true, "contiguous_gradients": true,
                               "stage3_max_live_parameters": 1e9,
                               "stage3_max_reuse_distance": 1e9,
                               "stage3_prefetch_bucket_size": 5e8,
                               "stage3_param_persistence_threshold": 1e6,
                               "sub_group_size": 1e12,
                               "stage3_gather_16bit_weights_on_model_save": true},
         "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
         "gradient_accumulation_steps": "auto"})",
     4,
     {.batch = 16, .lr = 0.00002, .dtype = precision::DType::kFloat16},
     {},
     {"zero_optimization.stage3_gather_16bit_weights_on_model_save is true: a checkpoint has all "
      "weights, in every stage",
      "zero_optimization.stage3_prefetch_bucket_size is 500000000.0: units are gathered whole, and "
      "brigade.live_units says how many",
      "zero_optimization.sub_group_size is 1000000000000.0: no state is in a file: "
      "offload_optimizer.device is not \"nvme\""}},
    {"tatsu-lab/stanford_alpaca, configs/default_offload_opt_param.json",
     R"({"bf16": {"enabled": "auto"},
         "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                                   "weight_decay": "auto"}},
         "scheduler": {"type": "WarmupDecayLR",
                       "params": {"total_num_steps": "auto", "warmup_min_lr": "auto",
                                  "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
         "zero_optimization": {"stage": 3,
                               "offload_optimizer": {"device": "cpu", "pin_memory": true},
                               "offload_param": {"device": "cpu", "pin_memory": true},
                               "overlap_comm": true, "contiguous_gradients": true,
                               "sub_group_size": 1e9, "reduce_bucket_size": "auto",
                               "stage3_prefetch_bucket_size": "auto",
                               "stage3_param_persistence_threshold": "auto",
                               "stage3_max_live_parameters": 1e9,
                               "stage3_max_reuse_distance": 1e9,
                               "stage3_gather_16bit_weights_on_model_save": false},
         "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 5,
         "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
         "wall_clock_breakdown": false})",
     4,
     {.batch = 128, .lr = 0.00002, .steps = 1000, .dtype = precision::DType::kBFloat16},
     {NotFilled("gradient_clipping",
                "leave the key out for 0.0, or write a number, 0 or more, and finite as a float"),
      NotFilled("optimizer.params.betas",
                "leave the key out for [0.9,0.999], or write an array of two numbers, 0 or more, "
                "and less than 1"),
      NotFilled("optimizer.params.eps",
                "leave the key out for 1e-08, or write a number, more than 0, as a float too"),
      NotFilled("optimizer.params.weight_decay",
                "leave the key out for 0.0, or write a number, 0 or more, and finite as a float"),
      NotFilled("scheduler.params.warmup_min_lr",
                "leave the key out for 0.0, or write a number, 0 or more, and finite as a float"),
      NotFilled("scheduler.params.warmup_num_steps",
                "leave the key out for 1000, or write a whole number, 0 to 2^24")}},
    {"deepspeedai/DeepSpeedExamples, training/pipeline_parallelism/ds_config.json",
     R"({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 8,
         "optimizer": {"type": "Adam",
                       "params": {"lr": 0.001, "betas": [0.9, 0.999], "eps": 1e-8}},
         "steps_per_print": 10, "wall_clock_breakdown": false})",
     8,
     {},
     {}},
    {"deepspeedai/DeepSpeedExamples, training/imagenet/config/ds_fp16_z1_config.json",
     R"({"train_batch_size": 256, "gradient_accumulation_steps": 1, "steps_per_print": 50,
         "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.8, 0.999], "eps": 1e-8,
                                                  "weight_decay": 3e-7}},
         "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": true,
         "fp16": {"enabled": true, "auto_cast": true}, "gradient_clipping": 0,
         "prescale_gradients": false, "cuda_visible_devices": 0, "wall_clock_breakdown": false})",
     4,
     {},
     {"cuda_visible_devices is 0; there is no such key"}},
    {"deepspeedai/DeepSpeedExamples, "
     "training/bing_bert/deepspeed_bsz4k_progressive_layer_drop_config_seq128.json",
     R"({"train_batch_size": 4096, "train_micro_batch_size_per_gpu": 16, "steps_per_print": 1000,
         "prescale_gradients": true, "gradient_predivide_factor": 8,
         "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "weight_decay": 0.01,
                                                  "bias_correction": false}},
         "gradient_clipping": 1.0, "wall_clock_breakdown": false,
         "fp16": {"enabled": true, "loss_scale": 0},
         "progressive_layer_drop": {"enabled": true, "theta": 0.5, "gamma": 0.001}})",
     64,
     {},
     {"gradient_predivide_factor is 8; it must be 1.0: gradients are divided after the sum",
      "optimizer.params.bias_correction is false; it must be true: the moments are always "
      "corrected",
      "prescale_gradients is true; it must be false: gradients are divided after the sum",
      "progressive_layer_drop is {\"enabled\":true,\"gamma\":0.001,\"theta\":0.5}, an object; "
      "DeepSpeed knows it, but it is not supported yet"}},
    {"deepspeedai/DeepSpeedExamples, training/DeepSpeed-ZenFlow/finetuning/zf_config.json",
     R"({"train_batch_size": 8, "bf16": {"enabled": true},
         "zero_optimization": {"stage": 2,
                               "offload_optimizer": {"device": "cpu", "pin_memory": true},
                               "zenflow": {"topk_ratio": 0.1, "update_interval": 4,
                                           "full_warm_up_rounds": 0, "overlap_step": true}},
         "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "betas": [0.9, 0.999], "eps": 1e-8,
                                                   "weight_decay": 0.01}},
         "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
         "zero_allow_untested_optimizer": true})",
     4,
     {},
     {"zero_optimization.zenflow is "
      "{\"full_warm_up_rounds\":0,\"overlap_step\":true,\"topk_ratio\":0.1,\"update_interval\":4}, "
      "an object; it must be null: it changes results: most gradients are applied late"}},
    {"microsoft/DeepSpeedExamples, "
     "training/megatron/Megatron-LM-v1.1.5-ZeRO3/examples/ds_zero_stage_3_config_release.json",
     R"({"train_batch_size": 64, "gradient_accumulation_steps": 1, "steps_per_print": 1,
         "zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e9,
                               "stage3_max_reuse_distance": 1e8,
                               "stage3_param_persistence_threshold": 1e5,
                               "stage3_prefetch_bucket_size": 5e7, "contiguous_gradients": true,
                               "cpu_offload": true, "cpu_offload_params": true,
                               "cpu_offload_use_pin_memory": true, "overlap_comm": true,
                               "reduce_bucket_size": 90000000, "sub_group_size": 4e8},
         "gradient_clipping": 1.0,
         "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2,
                  "min_loss_scale": 1},
         "wall_clock_breakdown": true, "zero_allow_untested_optimizer": false})",
     16,
     {.lr = 0.00015},
     {"zero_optimization.cpu_offload is true; it must be false: offload_optimizer.device says it, "
      "\"cpu\"",
      "zero_optimization.cpu_offload_params is true; there is no such key, the nearest is "
      "zero_optimization.cpu_offload_param"}},
    {"LAION-AI/Open-Assistant, model/model_training/configs/deepspeed_rl.json",
     R"({"fp16": {"enabled": "true", "loss_scale": 0, "loss_scale_window": 1000,
                  "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
         "zero_optimization": {"stage": 2, "allgather_partitions": true,
                               "allgather_bucket_size": 2e8, "overlap_comm": false,
                               "reduce_scatter": true, "reduce_bucket_size": 2e8,
                               "contiguous_gradients": true,
                               "offload_optimizer": {"device": "cpu", "pin_memory": true}},
         "gradient_accumulation_steps": "8", "train_micro_batch_size_per_gpu": "auto",
         "train_batch_size": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
         "wall_clock_breakdown": false})",
     4,
     {.batch = 32, .lr = 0.00001},
     {"fp16.enabled is \"true\", a string; it must be true or false",
      "gradient_accumulation_steps is \"8\", a string; it must be a whole number, 1 to 2^20",
      NotFilled("gradient_clipping",
                "leave the key out for 0.0, or write a number, 0 or more, and finite as a float")}},
    {"OpenRLHF/OpenRLHF, openrlhf/utils/deepspeed/deepspeed_utils.py, as it writes it for stage 3",
     R"({"steps_per_print": 100, "bf16": {"enabled": true}, "gradient_clipping": 1.0,
         "zero_optimization": {"stage": 3, "offload_param": {"device": "none"},
                               "offload_optimizer": {"device": "none", "pin_memory": true},
                               "sub_group_size": "auto", "stage3_max_live_parameters": "auto",
                               "stage3_max_reuse_distance": "auto",
                               "stage3_param_persistence_threshold": "auto",
                               "stage3_prefetch_bucket_size": "auto",
                               "reduce_bucket_size": "auto", "zero_hpz_partition_size": 1,
                               "zero_quantized_weights": false,
                               "zero_quantized_gradients": false},
         "data_types": {"grad_accum_dtype": "fp32"}, "prescale_gradients": false,
         "wall_clock_breakdown": false, "train_micro_batch_size_per_gpu": 1,
         "train_batch_size": 128})",
     8,
     {.lr = 0.000001},
     {},
     {"zero_optimization.stage3_max_live_parameters is \"auto\", a string: brigade.live_units says "
      "how many units are gathered at a time",
      "zero_optimization.stage3_max_reuse_distance is \"auto\", a string: brigade.live_units says "
      "how many units are gathered at a time",
      "zero_optimization.stage3_prefetch_bucket_size is \"auto\", a string: units are gathered "
      "whole, and brigade.live_units says how many",
      "zero_optimization.sub_group_size is \"auto\", a string: no state is in a file: "
      "offload_optimizer.device is not \"nvme\""}},
    {"bigscience-workshop/Megatron-DeepSpeed, tests/ds_config_bf16.json",
     R"({"train_micro_batch_size_per_gpu": 1, "train_batch_size": 16, "gradient_clipping": 1.0,
         "zero_optimization": {"stage": 1}, "bf16": {"enabled": true}, "steps_per_print": 2000,
         "wall_clock_breakdown": false})",
     4,
     {.lr = 0.0001},
     {}},
};

TEST(ProjectConfigsTest, AreAcceptedOrRefusedWithAllReasons) {
  for (const File& file : kFiles) {
    SCOPED_TRACE(file.source);
    const auto config = ParseConfig(file.json, file.ranks, ".", {}, file.flags);
    std::string expected = file.refusals.empty() ? "" : file.refusals[0];
    if (file.refusals.size() > 1) {
      expected = absl::StrCat(file.refusals.size(), " keys are refused:\n  ",
                              absl::StrJoin(file.refusals, "\n  "));
    }
    EXPECT_EQ(std::string(config.status().message()), expected);
    if (!config.ok()) continue;
    EXPECT_EQ(config->without_effect, file.without_effect);
  }
}

}  // namespace
}  // namespace brigade::train
