#include "brigade/examples/gpt/job_flags.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/collectives/init.h"
#include "brigade/collectives/options.h"
#include "brigade/device/command_line.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/corpus.h"
#include "brigade/examples/gpt/memory_flags.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/examples/gpt/pipeline_parts.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/precision/dtype_names.h"
#include "brigade/train/config/config.h"
#include "brigade/train/config/flag_refusals.h"
#include "brigade/train/step_flags.h"
#include "brigade/train/training_flags.h"
#include "brigade/zero/options.h"

ABSL_FLAG(std::string, device, "cpu",
          "cpu, or cuda: threads share the first GPU, processes have a GPU each");
ABSL_FLAG(std::string, data, "",
          "text to train on, any bytes; its last tenth, at most 64 KiB, is held out. Default: the "
          "licences in "
          "/usr/share/common-licenses");
ABSL_FLAG(std::string, config, "",
          "DeepSpeed-style JSON: batch, optimizer, scheduler, precision, ZeRO stage. Without it "
          "--batch is 16, rounded up to what the ranks share, --lr 0.003, and --precision fp16");
ABSL_FLAG(std::optional<int>, stage, std::nullopt,
          "without --config: ZeRO stage, 0 to 3; default 2");
ABSL_FLAG(
    bool, quantized_weights, false,
    "weights of 16 bits are gathered as int8 codes, in stages 1 to 3: zero_quantized_weights. "
    "Also where the config says so");
ABSL_FLAG(
    bool, quantized_gradients, false,
    "gradients are summed as int4 codes: zero_quantized_gradients. Also where the config says "
    "so");
ABSL_FLAG(
    bool, loco, false,
    "what codes of gradients leave out enters the next ones: zeropp_loco_param, as the config has "
    "it or with its defaults. With --quantized_gradients, or where the config says the same");
ABSL_FLAG(std::string, gradient_compression, "",
          "one_bit, power_sgd or top_k: ranks of stages 0 to 2 exchange gradients in fewer bytes, "
          "and keep what messages leave out; auto: as signs where the cost model says that they "
          "pay: brigade.gradient_compression. Before the config's");
ABSL_FLAG(std::optional<double>, dropout, std::nullopt,
          "the share that is dropped of the embedding's output and of what attention and MLP of "
          "each block add to it, 0 to below 1. Before the config's; default 0");
ABSL_FLAG(std::optional<int>, tensor, std::nullopt,
          "ranks that share the matrices of the model; they divide its heads. Before the config's; "
          "default 1");
ABSL_FLAG(std::optional<int>, tensor_shards, std::nullopt,
          "of the model's matrices: --tensor must divide them, and changes no bit of the training. "
          "Before the config's; default as --tensor");
ABSL_FLAG(bool, sequence_parallel, false,
          "--tensor's ranks share the rows between products too: norms, dropout and residuals, and "
          "what of these recomputation keeps. Also where the config says so");
ABSL_FLAG(std::optional<int>, tensor_overlap, std::nullopt,
          "--tensor's ranks exchange rows beside products, which are cut into so many pieces. "
          "Another number of pieces may be another training in its last bits. Before the config's; "
          "default: products wait for what is exchanged");
ABSL_FLAG(std::optional<int>, context_parallel, std::nullopt,
          "ranks that share each text; with --context_exchange=ulysses they divide the heads of a "
          "tensor shard, in a ring twice as many divide --context. Before the config's; default 1");
ABSL_FLAG(std::string, context_exchange, "",
          "how --context_parallel's ranks attend: ulysses (exchange heads for positions) or ring "
          "(pass keys and values on). Before the config's; default ulysses");
ABSL_FLAG(std::optional<int>, pipeline, std::nullopt,
          "ranks that share the layers of the model, one for each stage of a pipeline. Before the "
          "config's; default 1");
ABSL_FLAG(
    std::optional<int>, shard_ranks, std::nullopt,
    "ranks that share a state, of those with the same weights: groups of so many have a whole "
    "state each, gather weights among themselves, and sum gradients with each other once a "
    "step (HSDP, MiCS). Before the config's; default: all of them, one group");
ABSL_FLAG(std::optional<int>, replicas, std::nullopt,
          "whole copies of the training, among which the ranks are shared out: each updates "
          "locally, and every --replica_period steps they meet (DiLoCo, local SGD). Before the "
          "config's; default: the ranks train one");
ABSL_FLAG(std::optional<int64_t>, replica_period, std::nullopt,
          "steps between two rounds of --replicas. Before the config's; default 20");
ABSL_FLAG(std::optional<double>, outer_lr, std::nullopt,
          "the rate of rounds: 1 without --outer_momentum is the mean of weights. Before the "
          "config's; default 0.7");
ABSL_FLAG(std::optional<double>, outer_momentum, std::nullopt,
          "Nesterov's, of rounds, 0 to below 1. Before the config's; default 0.9");
ABSL_FLAG(std::optional<int>, replica_fragments, std::nullopt,
          "parts of the weights that have their rounds at different times of the period. Before "
          "the config's; default 1");
ABSL_FLAG(std::optional<int64_t>, replica_delay, std::nullopt,
          "steps beside which the sum of a round is on its way, below --replica_period / "
          "--replica_fragments. Before the config's; default 0");
ABSL_FLAG(std::optional<double>, replica_mix, std::nullopt,
          "the share of its own weights that a round leaves to a replica, 0 to below 1. Before the "
          "config's; default 0");
ABSL_FLAG(std::string, replica_wire, "",
          "the type in which replicas send their moves: fp32, fp16 or bf16. Before the config's; "
          "default fp32");
ABSL_FLAG(std::optional<int64_t>, replica_start_step, std::nullopt,
          "so many steps are followed each by a mean of all replicas' weights (post-local SGD). "
          "Before the config's; default 0");
ABSL_FLAG(std::string, schedule, "",
          "what --pipeline's stages do when: gpipe, 1f1b, interleaved:V (V parts of the model on "
          "each), zb-h1 or zb-v (backward passes in halves, two parts). It changes no bit. Before "
          "the config's; default 1f1b");
ABSL_FLAG(std::string, partition, "",
          "by what layers are dealt out to --pipeline's stages: parameters, flops, time (of passes "
          "tried before the first step), or the first layer of each part and their number, as "
          "0,3,6; embedding and head are layers too. Before the config's; default parameters");
ABSL_FLAG(int64_t, steps, 800, "optimizer steps");
ABSL_FLAG(std::optional<int64_t>, evaluate_every, std::nullopt,
          "steps between evaluations of the held-out text; 0: only at begin and end. "
          "Default: a fifth of all steps");
ABSL_FLAG(uint64_t, seed, 1, "of weights and batches");
ABSL_FLAG(int64_t, layers, 4, "of the model");
ABSL_FLAG(int64_t, width, 128, "of the model");
ABSL_FLAG(int64_t, heads, 4, "of the model");
ABSL_FLAG(int64_t, context, 128, "bytes that the model sees at once");

namespace brigade::gpt {
namespace {

// Rounded up to a multiple of the ranks that share it, and of a pipeline's stages.
constexpr int64_t kDefaultBatch = 16;
constexpr double kDefaultRate = 0.003;

train::ReplicaFlags ReplicasOfFlags(train::Refusals& refusals) {
  train::ReplicaFlags flags = {.replicas = absl::GetFlag(FLAGS_replicas),
                               .period = absl::GetFlag(FLAGS_replica_period),
                               .lr = absl::GetFlag(FLAGS_outer_lr),
                               .momentum = absl::GetFlag(FLAGS_outer_momentum),
                               .fragments = absl::GetFlag(FLAGS_replica_fragments),
                               .delay = absl::GetFlag(FLAGS_replica_delay),
                               .mix = absl::GetFlag(FLAGS_replica_mix),
                               .start_step = absl::GetFlag(FLAGS_replica_start_step)};
  const std::string wire = absl::GetFlag(FLAGS_replica_wire);
  if (wire.empty()) return flags;
  flags.wire = precision::ParseTrainingFormat(wire);
  if (!flags.wire.has_value()) {
    refusals.Add("replica_wire", " is \"", wire, "\"; it must be fp32, fp16 or bf16");
  }
  return flags;
}

train::ModelParallelism ParallelismOfFlags(train::Refusals& refusals) {
  const std::string exchange = absl::GetFlag(FLAGS_context_exchange);
  const std::optional<train::ContextExchange> parsed = train::ParseContextExchange(exchange);
  if (!exchange.empty() && !parsed.has_value()) {
    refusals.Add("context_exchange", " is \"", exchange, "\"; it must be ulysses or ring");
  }
  return {.tensor = absl::GetFlag(FLAGS_tensor),
          .context = absl::GetFlag(FLAGS_context_parallel),
          .tensor_shards = absl::GetFlag(FLAGS_tensor_shards),
          .sequence_parallel = absl::GetFlag(FLAGS_sequence_parallel),
          .tensor_overlap = absl::GetFlag(FLAGS_tensor_overlap),
          .context_exchange = parsed,
          .pipeline = absl::GetFlag(FLAGS_pipeline),
          .shard_ranks = absl::GetFlag(FLAGS_shard_ranks),
          .schedule = train::OfFlag("schedule", absl::GetFlag(FLAGS_schedule),
                                    parallel::ParseSchedule, refusals),
          .partition = train::OfFlag("partition", absl::GetFlag(FLAGS_partition),
                                     parallel::ParsePartition, refusals),
          .replicas = ReplicasOfFlags(refusals)};
}

// Of what is refused one that is right, as if it were given.
train::StepFlags StepOf(int64_t steps, train::Refusals& refusals) {
  train::StepFlags step = train::StepOfFlags(refusals);
  step.steps = steps;
  step.quantized_weights = absl::GetFlag(FLAGS_quantized_weights);
  step.quantized_gradients = absl::GetFlag(FLAGS_quantized_gradients);
  step.loco = absl::GetFlag(FLAGS_loco);
  if (const std::string name = absl::GetFlag(FLAGS_gradient_compression); !name.empty()) {
    for (const zero::GradientCompression method : zero::kGradientCompressions) {
      if (name == zero::Name(method)) step.gradient_compression = method;
    }
    step.chooses_gradient_compression = name == "auto";
    if (!step.gradient_compression.has_value() && !step.chooses_gradient_compression) {
      refusals.Add("gradient_compression", " is \"", name,
                   "\"; it must be one_bit, power_sgd, top_k or auto");
    }
  }
  return step;
}

// The stage is of --stage. What it says of its own is right: what is refused is of flags.
std::optional<train::TrainConfig> DefaultConfig(int ranks, int stage,
                                                const train::ModelParallelism& parallelism,
                                                train::StepFlags step, train::Refusals& refusals) {
  if (!step.dtype.has_value()) step.dtype = precision::DType::kFloat16;
  // Of ranks that share texts, or a model, one is as many as all. Stages of a pipeline work at the
  // same time on as many micro-batches: these are of one text then, and as many for each stage.
  const auto one_or_more = [](const std::optional<int>& flag) {
    return std::max(flag.value_or(1), 1);
  };
  const int stages = one_or_more(parallelism.pipeline);
  const int64_t data_ranks = std::max(
      ranks / one_or_more(parallelism.tensor) / one_or_more(parallelism.context) / stages, 1);
  const int64_t unit = data_ranks * stages;
  if (step.batch == 0) step.batch = (kDefaultBatch + unit - 1) / unit * unit;
  if (!step.lr.has_value()) step.lr = kDefaultRate;
  const std::string micro_batch = stages == 1 ? "" : R"("train_micro_batch_size_per_gpu": 1,)";
  // In fewer than 40 steps this learning rate throws the weights far off.
  const int64_t warm_up = std::max({std::min(step.steps / 20, int64_t{1} << 20),
                                    std::min<int64_t>(step.steps / 2, 40), int64_t{2}});
  step.steps = std::max<int64_t>(step.steps, 3);
  return train::ParseConfig(absl::StrFormat(
                                R"({"gradient_clipping": 1.0, %s
              "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
              "optimizer": {"type": "AdamW",
                            "params": {"betas": [0.9, 0.99], "weight_decay": 0.1}},
              "scheduler": {"type": "WarmupCosineLR",
                            "params": {"total_num_steps": "auto", "warmup_num_steps": %d,
                                       "warmup_type": "linear", "cos_min_ratio": 0.05}},
              "zero_optimization": {"stage": %d}})",
                                micro_batch, warm_up, stage),
                            ranks, ".", parallelism, step, refusals.all());
}

// The backend must be able to reach the device's memory, and have what the config asks for.
void CheckBackend(const JobRanks& ranks, const Job& job, train::Refusals& refusals) {
  using collectives::Backend;
  const bool on_gpu = job.device.kind == device::DeviceKind::kCuda;
  if (ranks.backend == (on_gpu ? Backend::kGloo : Backend::kNccl)) {
    refusals.Add("backend", " is ", collectives::Name(ranks.backend),
                 ", which does not work with --device=", device::ToString(job.device.kind));
  }
  if (job.config.zero.algorithm == collectives::Algorithm::kNative &&
      !(ranks.processes && on_gpu)) {
    refusals.Check(absl::InvalidArgumentError(
        absl::StrCat("brigade.algorithm is \"native\", but the backend ",
                     collectives::Name(ranks.processes ? Backend::kGloo : Backend::kThreads),
                     " has no collectives of its own; nccl has")));
  }
}

// `text` may be null: --config names a file, or there is none.
absl::StatusOr<Job> JobBeside(const ConfigText* text, const JobRanks& ranks,
                              train::Refusals refusals) {
  // Of each flag by itself. What is refused does not refuse others: these go by one that is right.
  Job job;
  job.model = {.layers = absl::GetFlag(FLAGS_layers),
               .heads = absl::GetFlag(FLAGS_heads),
               .width = absl::GetFlag(FLAGS_width),
               .context = absl::GetFlag(FLAGS_context)};
  job.steps = absl::GetFlag(FLAGS_steps);
  if (job.steps < 1) refusals.Add("steps", " is ", job.steps, "; it must be at least 1");
  job.evaluate_every = absl::GetFlag(FLAGS_evaluate_every).value_or((job.steps + 4) / 5);
  if (job.steps >= 1 && job.evaluate_every < 0) {
    refusals.Add("evaluate_every", " is ", job.evaluate_every, "; it must be at least 0");
  }
  job.seed = absl::GetFlag(FLAGS_seed);
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device != "cpu" && device != "cuda") {
    refusals.Add("device", " is \"", device, "\"; it must be cpu or cuda");
  }
  job.device = device == "cuda" ? device::Cuda() : device::Cpu();
  const std::string config = device::FromUsersFolder(absl::GetFlag(FLAGS_config));
  std::optional<int> stage = absl::GetFlag(FLAGS_stage);
  if (stage.has_value() && !config.empty()) {
    refusals.Add("stage", " is in the file that --config names, not beside it");
  } else if (stage.has_value() && (*stage < 0 || *stage >= zero::kStages)) {
    refusals.Add("stage", " is ", *stage, "; it must be 0 to ", zero::kStages - 1);
    stage = zero::kStages - 1;
  }
  job.checkpoints = train::CheckpointFlags(refusals);
  job.digests = train::DigestFlags(job.steps, refusals);
  size_t refused = refusals.size();
  const train::ModelParallelism parallelism = ParallelismOfFlags(refusals);
  const bool can_be_shared = refusals.size() == refused;
  const train::StepFlags step = StepOf(std::max<int64_t>(job.steps, 1), refusals);
  const std::optional<double> dropout = absl::GetFlag(FLAGS_dropout);
  if (dropout.has_value() && !(*dropout >= 0 && *dropout < 1)) {
    refusals.Add("dropout", " is ", *dropout, "; it must be at least 0 and below 1");
  }
  refused = refusals.size();
  const MemoryFlags memory = MemoryOfFlags(refusals);
  const bool has_memory = refusals.size() == refused;
  const std::string data = device::FromUsersFolder(absl::GetFlag(FLAGS_data));
  bool has_text = false;
  if (text == nullptr || text->reads_texts) {
    auto corpus = data.empty() ? ReadLicences() : ReadCorpus(data);
    has_text = refusals.Check(corpus.status());
    if (has_text) job.corpus = *std::move(corpus);
  }

  // Of flags and keys together. A file that has refused something is named.
  std::optional<train::TrainConfig> read;
  bool is_of_file = false;
  if (text != nullptr) {
    refused = refusals.size();
    read = train::ParseConfig(text->text, ranks.count, text->folder, parallelism, step,
                              refusals.all());
    is_of_file = refusals.size() > refused;
  } else if (config.empty()) {
    read = DefaultConfig(ranks.count, stage.value_or(2), parallelism, step, refusals);
  } else {
    refused = refusals.size();
    auto of_file = train::ReadConfig(config, ranks.count, parallelism, step, refusals.all());
    is_of_file = refusals.size() > refused;
    if (refusals.Check(of_file.status())) read = *std::move(of_file);
  }

  // And beside the model, where that is right.
  if (read.has_value()) job.config = *read;
  train::SetByFlags(read.has_value(), job.config, refusals);
  if (read.has_value()) {
    job.model.tensor_shards = job.config.tensor_shards;
    job.model.sequence_parallel = job.config.sequence_parallel;
    job.model.tensor_pieces = job.config.tensor_pieces;
    job.config.dropout = dropout.value_or(job.config.dropout);
    if (has_memory) SetMemory(memory, job, refusals);
  }
  CheckBackend(ranks, job, refusals);
  if (refusals.Check(Validate(job.model))) {
    if (read.has_value() && can_be_shared) {
      refusals.Check(CheckParts(job.model, job.config));
      refusals.Check(Validate(ShapeOf(job)));
    }
    if (has_text) refusals.Check(CheckLength(job.corpus, job.model.context));
  }
  BRIGADE_RETURN_IF_ERROR(refusals.status(is_of_file ? config : ""));
  return job;
}

}  // namespace

absl::StatusOr<Job> JobOfFlags(const JobRanks& ranks, train::Refusals refusals) {
  return JobBeside(nullptr, ranks, std::move(refusals));
}

absl::StatusOr<Job> JobOfFlags(const JobRanks& ranks, train::Refusals refusals,
                               const ConfigText& config) {
  return JobBeside(&config, ranks, std::move(refusals));
}

}  // namespace brigade::gpt
