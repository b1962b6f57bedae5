#include <string>

#include "absl/strings/str_cat.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/train/config/config_sections.h"

// Names and defaults are those of deepspeed/runtime/tensor_parallel/config.py, and of the
// pipeline's section in deepspeed/runtime/config.py.

namespace brigade::train {
namespace {

// A number, or "auto", which is as good as nothing.
Value Stages(int* target) {
  Value value = Otherwise(Whole(target, kRanks), "\"auto\"");
  absl::StrAppend(&value.type, ", or \"auto\"");
  value.read = [type = value.type, read = value.read](const Json& json) -> Verdict {
    if (json == Json("auto")) return {};
    return read(json).kind == Verdict::Kind::kTaken ? Verdict() : Wrong(type);
  };
  return value;
}

// DeepSpeed's methods, of which one has a meaning for a model whose blocks are all alike; of one
// stage all are the same.
Value DeepSpeedPartition(Settings& s) {
  const std::string methods = R"("parameters", "uniform", "best" or "type:NAME")";
  return {[&s, methods](const Json& value) -> Verdict {
            const std::string method = value.is_string() ? value.get<std::string>() : "";
            s.no_partition.clear();
            if (method == "parameters") {
              s.deepspeed_partition = {.by = parallel::PartitionChoice::By::kParameters};
            } else if (method == "best") {
              s.no_partition =
                  R"(by what parts are best brigade.partition says, "flops" or "time")";
            } else if (method == "uniform" || method.starts_with("type:")) {
              s.no_partition =
                  R"(brigade.partition has boundaries for other numbers of layers, as "0,3,6")";
            } else {
              return Wrong(methods);
            }
            return {};
          },
          methods, R"("parameters")"};
}

}  // namespace

Keys TensorKeys(Settings& s) {
  constexpr char kOwnCut[] = "the model knows how its matrices are cut";
  const auto inner = [&s, kOwnCut](const char* name, const char* meaning) -> Key {
    return {.name = name,
            .meaning = meaning,
            .keys = {{"tp_size", Otherwise(Whole(&s.tp_size, kRanks), "1"), "as autotp_size"},
                     {"tp_grain_size", Only(1, kOwnCut)},
                     {"tp_group", Only(nullptr, "--ranks are numbered by the trainer")},
                     {"mpu", Only(nullptr, "--ranks are numbered by the trainer")}}};
  };
  return {{"autotp_size", Whole(&s.autotp_size, {0.0, 1 << 15, "0 to 2^15"}),
           "ranks that share the model's matrices (`--tensor`); 0: not given"},
          {"tp_overlap_comm", Flag(&s.tensor_overlap),
           "true: they exchange pieces of products beside products (`--tensor_overlap`)"},
          inner("tp", "The same number in a section of its own."),
          inner("tensor_parallel", "Another name of `tp`."),
          {"dtype", NotSupported("fp16 and bf16 say it")},
          {"injection_policy_tuple", Only(nullptr, kOwnCut)},
          {"keep_module_on_host", Only(false, kOwnCut)},
          {.name = "replace_with_kernel_inject",
           .value = Only(false, kOwnCut),
           .also = "kernel_inject"},
          {"partition_config", Only(nullptr, kOwnCut)},
          {"preset_model", Only(nullptr, kOwnCut)}};
}

Keys PipelineKeys(Settings& s) {
  constexpr char kParts[] =
      "true: tensor ranks send parts of what goes from stage to stage, which is as "
      "brigade.sequence_parallel says; without effect with one stage";
  return {{"stages", Stages(&s.stages),
           "ranks that share the model's layers; \"auto\": as `--pipeline` of `examples/gpt` says, "
           "else 1"},
          {"partition", DeepSpeedPartition(s),
           "by what layers are dealt out: with several stages \"parameters\", and what "
           "`brigade.partition` says instead of the others"},
          {"seed_layers", Either(true,
                                 "weights depend on the seed and their place in the model, not on "
                                 "stages")},
          {"activation_checkpoint_interval",
           Whole(&s.activation_checkpoint_interval, {0.0, 1 << 20, "0 to 2^20"}),
           "K: as `recompute` \"segments:K\"; 0: as \"none\""},
          {"pipe_partitioned", Otherwise(Flag(&s.pipe_partitioned), ""), kParts},
          {"grad_partitioned", Otherwise(Flag(&s.grad_partitioned), ""), kParts},
          {"use_reentrant", Either(true, "there is no graph of autograd")}};
}

}  // namespace brigade::train
