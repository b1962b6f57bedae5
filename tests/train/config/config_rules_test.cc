#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "brigade/train/config/config.h"
#include "brigade/train/config/json_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

// What is refused beside a key that is refused itself: all that goes by other keys, and nothing
// that goes by that one. So each rule must name the keys by which it goes, and no others.

namespace brigade::train {
namespace {

// Refusals by their paths.
using Refused = std::map<std::string, std::string>;

Refused RefusedOf(const Json& config) {
  std::vector<Refusal> refusals;
  (void)ParseConfig(config.dump(), 4, ".", {}, {}, refusals);
  Refused refused;
  for (const Refusal& refusal : refusals) refused[refusal.path] = refusal.text;
  return refused;
}

// Keys by which rules go, and what they may say; the first value counts where a key is not given.
const std::map<std::string, std::vector<Json>> kKeys = {
    {"fp16.enabled", {false, true}},
    {"fp16.loss_scale", {0, 128}},
    {"fp16.initial_scale_power", {16, -2, 4}},
    {"fp16.min_loss_scale", {1, 8, 1048576}},
    {"bf16.enabled", {false, true}},
    {"data_types.param_dtype", {nullptr, "fp32", "fp16", "bf16"}},
    {"optimizer.type",
     {"Adam", "AdamW", "SGD", "Lion", "Muon", "Adafactor", "Lamb", "AdamW8bit", "OneBitAdam",
      "OneBitLamb", "ZeroOneAdam"}},
    {"optimizer.params.lr", {0.001, 0.25, 0.5}},
    {"optimizer.params.momentum", {0, 0.9}},
    {"optimizer.params.dampening", {0, 0.5}},
    {"optimizer.params.nesterov", {false, true}},
    {"optimizer.params.relative_step", {true, false}},
    {"optimizer.params.warmup_init", {false, true}},
    {"optimizer.params.torch_adam", {false, true}},
    {"optimizer.params.adam_w_mode", {true, false}},
    {"optimizer.params.local_step_clipper", {16, 1}},
    {"scheduler.params.decay_step_size", {0, 3}},
    {"scheduler.params.decay_lr_rate", {0, 0.5}},
    {"scheduler.params.total_num_steps", {nullptr, 90}},
    {"zero_optimization.stage", {0, 1, 2, 3}},
    {"zero_optimization.offload_optimizer.device", {"none", "cpu", "nvme"}},
    {"zero_optimization.offload_optimizer.ratio", {1, 0.5}},
    {"zero_optimization.offload_optimizer.nvme_path", {nullptr, "/d", "/e"}},
    {"zero_optimization.offload_param.device", {"none", "cpu", "nvme"}},
    {"zero_optimization.offload_param.nvme_path", {nullptr, "/d", "/e"}},
    {"zero_optimization.sub_group_size", {nullptr, 0, 1000}},
    {"zero_optimization.stage3_prefetch_bucket_size", {nullptr, 0, 1000}},
    {"zero_optimization.zero_quantized_gradients", {false, true}},
    {"zero_optimization.mics_shard_size", {-1, 1, 2, 4}},
    {"activation_checkpointing.cpu_checkpointing", {false, true}},
    {"activation_checkpointing.partition_activations", {false, true}},
    {"aio.block_size", {4096, 5000}},
    {"sequence_parallel_size", {1, 2}},
    {"pipeline.stages", {1, 2, 4}},
    {"pipeline.partition", {nullptr, "parameters", "best", "uniform"}},
    {"pipeline.pipe_partitioned", {nullptr, false, true}},
    {"pipeline.activation_checkpoint_interval", {nullptr, 0, 2}},
    {"tensor_parallel.autotp_size", {0, 1, 2, 4}},
    {"tensor_parallel.tp.tp_size", {1, 2, 4}},
    {"tensor_parallel.tp_overlap_comm", {false, true}},
    {"brigade.accumulation", {"every_micro_batch", "at_boundary"}},
    {"brigade.algorithm", {"auto", "direct", "ring", "hierarchical", "double_tree"}},
    {"brigade.reduction", {"rounded_once", "rounded_per_hop", "fp32_partials"}},
    {"brigade.topology", {nullptr, "collectives/tuning/topologies/hgx_h100.json"}},
    {"brigade.ranks_per_node", {nullptr, 1, 2, 4}},
    {"brigade.gradient_compression", {"none", "one_bit", "power_sgd", "top_k"}},
    {"brigade.live_units", {nullptr, 1, 2, 3}},
    {"brigade.at_minimum_loss_scale", {nullptr, "error", "clamp"}},
    {"brigade.delay_update", {false, true}},
    {"brigade.delay_warm_up", {nullptr, 3}},
    {"brigade.recompute", {nullptr, "none", "block", "selective", "segments:2"}},
    {"brigade.recompute_times", {nullptr, "operations"}},
    {"brigade.stash", {nullptr, "none", "host", "file"}},
    {"brigade.file_directory", {nullptr, "/d", "/e"}},
    {"brigade.tensor_shards", {nullptr, 1, 2, 4}},
    {"brigade.sequence_parallel", {false, true}},
    {"brigade.keep_gathered", {nullptr, true}},
    {"brigade.partition", {nullptr, "parameters", "flops"}},
    {"brigade.schedule", {nullptr, "1f1b", "gpipe"}},
    {"brigade.tied_gradients", {"apart", "together"}},
    {"brigade.shard_ranks", {nullptr, 1, 2, 4}},
    {"brigade.replicas", {nullptr, 1, 2, 4}},
    {"brigade.replica_period", {20, 2, 4}},
    {"brigade.replica_fragments", {1, 2, 3}},
    {"brigade.replica_delay", {nullptr, 0, 2, 30}},
};

// Whose refusals are those of rules, most of several.
const char* const kConfigs[] = {
    R"({})",
    R"({"fp16": {"enabled": true, "loss_scale": 0, "min_loss_scale": 8, "initial_scale_power": 2},
        "bf16": {"enabled": true}, "data_types": {"param_dtype": "fp32"}})",
    R"({"fp16": {"enabled": true, "loss_scale": 1e-30, "fp16_master_weights_and_grads": true},
        "brigade": {"at_minimum_loss_scale": "clamp"}})",
    R"({"optimizer": {"type": "AdamW", "params": {"torch_adam": true}}})",
    R"({"optimizer": {"type": "SGD", "params": {"nesterov": true, "momentum": 0}}})",
    R"({"optimizer": {"type": "ZeroOneAdam", "params": {"local_step_clipper": 16}},
        "zero_optimization": {"stage": 3, "zero_quantized_gradients": true},
        "brigade": {"shard_ranks": 2, "gradient_compression": "one_bit"}})",
    R"({"optimizer": {"type": "Lamb"}, "tensor_parallel": {"autotp_size": 2},
        "brigade": {"gradient_compression": "top_k", "gradient_compression_rank": 4},
        "pipeline": {"stages": 2}})",
    R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1,
        "cycle_momentum": false, "decay_lr_rate": 0.5, "decay_step_size": 0}}})",
    R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0, "cycle_max_lr": 1,
        "cycle_momentum": false, "decay_lr_rate": 0.5, "decay_step_size": 3}}})",
    R"({"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "nvme"}},
        "brigade": {"live_units": 3, "accumulation": "at_boundary", "delay_warm_up": 3}})",
    R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/e"},
        "offload_optimizer": {"device": "nvme", "nvme_path": "/d", "ratio": 0.5}},
        "aio": {"block_size": 5000},
        "brigade": {"delay_update": true, "accumulation": "at_boundary"}})",
    R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"},
        "offload_optimizer": {"device": "cpu", "ratio": 0.5}, "stage3_prefetch_bucket_size": 0},
        "brigade": {"delay_update": true, "live_units": 3, "file_limit": 100,
                    "file_direct": true}})",
    R"({"zero_optimization": {"stage": 1, "sub_group_size": 0,
        "offload_optimizer": {"device": "nvme", "nvme_path": "/d"}},
        "brigade": {"file_directory": "/e", "live_units": 2}})",
    R"({"activation_checkpointing": {"cpu_checkpointing": true, "partition_activations": true},
        "pipeline": {"activation_checkpoint_interval": 0, "pipe_partitioned": true},
        "tensor_parallel": {"autotp_size": 2}, "brigade": {"recompute": "selective"}})",
    R"({"activation_checkpointing": {}, "pipeline": {"activation_checkpoint_interval": 0},
        "brigade": {"stash": "file", "recompute_times": "operations"}})",
    R"({"brigade": {"stash": "file", "recompute": "block", "recompute_times": "operations"}})",
    R"({"brigade": {"stash": "host", "recompute_times": "operations", "file_engine": "threads"}})",
    R"({"brigade": {"algorithm": "hierarchical", "delay_update": true, "topology": "missing"}})",
    R"({"brigade": {"algorithm": "ring", "reduction": "rounded_once", "ranks_per_node": 2}})",
    R"({"brigade": {"algorithm": "direct", "topology": "missing", "keep_gathered": true}})",
    R"({"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 4}, "tp_overlap_comm": true,
        "tensor_parallel": {"tp_size": 2}}, "brigade": {"tensor_shards": 2}})",
    R"({"tensor_parallel": {"tp_overlap_comm": true},
        "brigade": {"tensor_sums": "fp32", "context_exchange": "ring", "schedule": "gpipe",
                    "partition": "flops"}})",
    R"({"pipeline": {"stages": 2, "partition": "best", "pipe_partitioned": true,
                     "grad_partitioned": true},
        "tensor_parallel": {"autotp_size": 2},
        "brigade": {"tied_gradients": "together", "partition": "flops"}})",
    R"({"pipeline": {"stages": 3}, "brigade": {"shard_ranks": 3, "replicas": 3}})",
    R"({"brigade": {"replica_period": 2, "replica_fragments": 3, "replica_delay": 1,
                    "outer_lr": 0.5}})",
    R"({"brigade": {"replicas": 2, "replica_period": 2, "replica_fragments": 3,
                    "gradient_compression": "one_bit", "shard_ranks": 2}})",
    R"({"brigade": {"replicas": 2, "replica_period": 4, "replica_fragments": 2,
                    "replica_delay": 2},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "pipeline": {"stages": 2}})",
    R"({"zero_optimization": {"stage": 3, "mics_shard_size": 4, "zero_hpz_partition_size": 4},
        "brigade": {"shard_ranks": 2}})",
    R"({"fp16": {"loss_scale": 0}, "data_types": {"param_dtype": "fp16"},
        "zero_optimization": {"mics_shard_size": 4}, "brigade": {"at_minimum_loss_scale": "clamp"},
        "activation_checkpointing": {"cpu_checkpointing": true, "partition_activations": true}})",
    R"({"zero_optimization": {"stage": 1}, "aio": {"block_size": 5000},
        "pipeline": {"stages": 2, "pipe_partitioned": true, "grad_partitioned": true},
        "brigade": {"delay_update": true, "gradient_compression": "one_bit", "recompute": "block",
                    "file_directory": "/d", "tensor_shards": 2}})",
    R"({"brigade": {"topology": "collectives/tuning/topologies/hgx_h100.json"}})",
    R"({"brigade": {"gradient_compression": "one_bit"}})",
    R"({"brigade": {"replicas": 2}})",
    R"({"zero_optimization": {"mics_shard_size": 3}, "pipeline": {"stages": 4}})",
    R"({"train_batch_size": 33, "zero_optimization": {"stage": 1, "mics_shard_size": 3}})",
};

Json Parsed(const char* text) {
  Json config = Json::parse(text);
  if (!config.contains("train_batch_size")) config["train_batch_size"] = 8;
  if (!config.contains("optimizer")) config["optimizer"]["type"] = "Adam";
  return config;
}

Json With(Json config, const std::string& path, const Json& value) {
  config[Json::json_pointer(absl::StrCat("/", absl::StrReplaceAll(path, {{".", "/"}})))] = value;
  return config;
}

// What is refused beside a key that is refused, and with each value that it may have.
struct Case {
  std::string config, key;
  Refused beside;
  std::vector<Refused> of_values;
};

// Each config with each key that is read in it.
const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>([] {
    std::vector<Case> made;
    std::set<std::string> read;
    for (const char* const text : kConfigs) {
      const Json config = Parsed(text);
      for (const auto& [path, values] : kKeys) {
        // No key may be that.
        const Json wrong = With(config, path, Json::array({Json::array()}));
        Case each = {text, path, RefusedOf(wrong), {}};
        if (each.beside.erase(path) == 0) continue;
        read.insert(path);
        for (const Json& value : values) {
          each.of_values.push_back(RefusedOf(With(config, path, value)));
        }
        made.push_back(std::move(each));
      }
    }
    EXPECT_EQ(read.size(), kKeys.size());
    return made;
  }());
  return *cases;
}

// Without numbers and words in quotes, which may be of values.
std::string Shape(const std::string& text) {
  return std::regex_replace(text, std::regex(R"([0-9]+|"[^"]*")"), "");
}

TEST(ConfigRulesTest, NothingIsRefusedThatGoesByARefusedKey) {
  for (const Case& each : Cases()) {
    SCOPED_TRACE(absl::StrCat(each.config, " with ", each.key));
    for (const auto& [path, text] : each.beside) {
      for (const Refused& refused : each.of_values) {
        const auto found = refused.find(path);
        ASSERT_TRUE(found != refused.end()) << text;
        // The same text, or that of another rule: none may tell the default of the refused key.
        EXPECT_TRUE(found->second == text || Shape(found->second) != Shape(text)) << text;
      }
    }
  }
}

TEST(ConfigRulesTest, AllIsRefusedThatGoesByOtherKeys) {
  const auto text_of = [](const Refused& refused, const std::string& path) {
    const auto found = refused.find(path);
    return found == refused.end() ? "" : found->second;
  };
  // What is refused of the first of these goes by the second, in some config.
  std::set<std::pair<std::string, std::string>> goes_by;
  for (const Case& each : Cases()) {
    for (const Refused& one : each.of_values) {
      for (const auto& [path, text] : one) {
        for (const Refused& other : each.of_values) {
          if (text_of(other, path) != text) goes_by.emplace(path, each.key);
        }
      }
    }
  }
  for (const Case& each : Cases()) {
    SCOPED_TRACE(absl::StrCat(each.config, " with ", each.key));
    for (const auto& [path, text] : each.of_values[0]) {
      if (goes_by.count({path, each.key}) == 0) {
        EXPECT_EQ(text_of(each.beside, path), text);
      }
    }
  }
}

}  // namespace
}  // namespace brigade::train
