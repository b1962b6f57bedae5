#include "brigade/examples/gpt/parallel_keys.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"

namespace brigade::gpt {
namespace {

constexpr NumberRange kRanks = {1.0, 1 << 15, "1 to 2^15"};

// A number, or "auto", which is as good as nothing.
Read Stages(int* target) {
  return [read = Whole(target, kRanks)](const Json& value) -> std::string {
    if (value == Json("auto")) return "";
    const std::string wrong = read(value);
    return wrong.empty() ? wrong : absl::StrCat(wrong, ", or \"auto\"");
  };
}

// DeepSpeed's methods, of which one has a meaning for a model whose blocks are all alike.
Read DeepSpeedPartition(std::optional<parallel::PartitionChoice>* target) {
  return [=](const Json& value) -> std::string {
    if (value == Json("parameters")) {
      *target = {.by = parallel::PartitionChoice::By::kParameters};
      return "";
    }
    const std::string method = value.is_string() ? value.get<std::string>() : "";
    const std::string parameters = R"("parameters")";
    if (method == "uniform" || method.starts_with("type:")) {
      return parameters +
             R"(: brigade.partition has boundaries for other numbers of layers, as "0,3,6")";
    }
    if (method == "best") {
      return parameters + R"(: by what parts are best brigade.partition says, "flops" or "time")";
    }
    return parameters;
  };
}

}  // namespace

Keys TensorKeys(Settings& s) {
  const Keys inner = {{"tp_size", Whole(&s.tp_size, kRanks)}, {"tp_grain_size"}, {"tp_group"}};
  return {{"autotp_size", Whole(&s.autotp_size, {0.0, 1 << 15, "0 to 2^15"})},
          {"tensor_parallel", nullptr, inner},
          {"tp", nullptr, inner},
          {"tp_overlap_comm", Flag(&s.tensor_overlap)},
          {"partition_config"},
          {"preset_model"}};
}

Keys PipelineKeys(Settings& s) {
  return {{"stages", Stages(&s.stages)},
          {"partition", DeepSpeedPartition(&s.deepspeed_partition)},
          {"seed_layers", Only(true,
                               "weights depend on the seed and their place in the model, not on "
                               "stages")},
          {"activation_checkpoint_interval",
           Whole(&s.activation_checkpoint_interval, {0.0, 1 << 20, "0 to 2^20"})},
          {"pipe_partitioned", Flag(&s.pipe_partitioned)},
          {"grad_partitioned", Flag(&s.grad_partitioned)},
          // How PyTorch records what is made again; here nothing is recorded.
          {"use_reentrant", Flag(nullptr)}};
}

Read Schedule(Settings& s) {
  return [&s](const Json& value) -> std::string {
    const auto schedule = value.is_string() ? parallel::ParseSchedule(value.get<std::string>())
                                            : absl::InvalidArgumentError("no text");
    if (!schedule.ok()) return "gpipe, 1f1b, interleaved:V with V from 2 on, zb-h1 or zb-v";
    s.pipeline_schedule = *schedule;
    return "";
  };
}

Read Partition(Settings& s) {
  return [&s](const Json& value) -> std::string {
    const auto partition = value.is_string() ? parallel::ParsePartition(value.get<std::string>())
                                             : absl::InvalidArgumentError("no text");
    if (!partition.ok()) {
      return R"(parameters, flops, time or ascending boundaries from 0 on, as "0,3,6")";
    }
    s.partition = *partition;
    return "";
  };
}

}  // namespace brigade::gpt
