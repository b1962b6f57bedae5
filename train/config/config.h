#ifndef BRIGADE_TRAIN_CONFIG_CONFIG_H_
#define BRIGADE_TRAIN_CONFIG_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/checkpoint/saver.h"
#include "brigade/collectives/options.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/partition.h"
#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/parallel/tensor/shard_sums.h"
#include "brigade/precision/dtype.h"
#include "brigade/profile/options.h"
#include "brigade/recompute/policy.h"
#include "brigade/replicas/options.h"
#include "brigade/train/config/autotuning.h"
#include "brigade/train/config/context_exchange.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/batch_sizes.h"

namespace brigade::train {

struct Refusal;

// By what a plan of recomputation counts the time of passes.
enum class RecomputeTimes : uint8_t {
  // By operations.
  kOperations,
  // By a trial before the first step.
  kMeasured,
};

// "operations", "measured". InvalidArgument naming the text and what it may be.
absl::StatusOr<RecomputeTimes> ParseRecomputeTimes(absl::string_view text);

// Whole copies of the training that update locally, as far as flags say it: their number, and
// replicas::OuterOptions.
struct ReplicaFlags {
  std::optional<int> replicas = {};
  std::optional<int64_t> period = {};
  std::optional<double> lr = {};
  std::optional<double> momentum = {};
  std::optional<int> fragments = {};
  std::optional<int64_t> delay = {};
  std::optional<double> mix = {};
  std::optional<precision::DType> wire = {};
  std::optional<int64_t> start_step = {};
};

// How ranks share a model, as far as flags say it.
struct ModelParallelism {
  // Ranks that share its matrices, and each text.
  std::optional<int> tensor = {};
  std::optional<int> context = {};
  // Into how many shards the model's matrices are cut.
  std::optional<int> tensor_shards = {};
  // Tensor ranks share rows between products too; false: not given.
  bool sequence_parallel = false;
  // Into how many pieces products are cut, which are exchanged one beside another.
  std::optional<int> tensor_overlap = {};
  // Of context ranks.
  std::optional<ContextExchange> context_exchange = {};
  // Ranks that share its layers, one for each stage of a pipeline.
  std::optional<int> pipeline = {};
  // ZeroOptions::shard_ranks.
  std::optional<int> shard_ranks = {};
  // Of the pipeline.
  std::optional<parallel::ScheduleChoice> schedule = {};
  std::optional<parallel::PartitionChoice> partition = {};
  ReplicaFlags replicas = {};
};

// What a step is, as far as flags say it. With them "auto" is right for the keys that say the same.
struct StepFlags {
  // Texts of a step, of all ranks: train_batch_size. Micro-batch and accumulation of the file stay
  // and must fit it. 0: not given.
  int64_t batch = 0;
  // optimizer.params.lr, of AdamW where the file has no optimizer. A schedule with rates of its own
  // must rise to the same.
  std::optional<double> lr = {};
  // How many there are, for total_num_steps; 0: not given.
  int64_t steps = 0;
  // zero_quantized_weights and zero_quantized_gradients; false: not given.
  bool quantized_weights = false;
  bool quantized_gradients = false;
  // zeropp_loco_param, as the file has it or with its defaults.
  bool loco = false;
  // brigade.gradient_compression; none: not given, or "auto".
  std::optional<zero::GradientCompression> gradient_compression = {};
  bool chooses_gradient_compression = false;
  // What fp16.enabled and bf16.enabled must say together.
  std::optional<precision::DType> dtype = {};
};

// What crosses the wire in fewer bytes if the cost model says that it pays: keys that are "auto".
struct OpenCodecs {
  // zero_quantized_weights and zero_quantized_nontrainable_weights.
  bool weights = false;
  bool frozen_weights = false;
  // zero_quantized_gradients, with LoCo where zeropp_loco_param is given.
  bool gradients = false;
  std::optional<zero::LocoOptions> loco = {};
  // brigade.gradient_compression, of signs.
  bool compression = false;
  zero::CompressionOptions signs = {};
  // The config has no figures of the machine (brigade.topology): they are measured.
  bool measures = true;

  bool any() const { return weights || frozen_weights || gradients || compression; }
};

// The most chunks of a stage of a pipeline, for which summaries of ranks have room.
inline constexpr int kMaxChunks = 8;

// Where metrics go, beside the terminal (monitor/).
struct MonitorConfig {
  // Folders of event files and of CSV, from where the training is started; empty: none.
  std::string tensorboard;
  std::string csv;
  // Parts of each step are told.
  bool wall_clock_breakdown = false;
};

// What a DeepSpeed-style JSON file says about a training run.
struct TrainConfig {
  // All three sizes are set. The ranks that divide train_batch_size are the grid's data ranks.
  zero::BatchSizes batch;
  // Valid; micro_batches is batch.gradient_accumulation_steps.
  zero::ZeroOptions zero;
  // Which activations the backward pass makes again.
  recompute::Policy recompute;
  RecomputeTimes recompute_times = RecomputeTimes::kOperations;
  // The share of activations that training passes drop, where the model has dropout.
  double dropout = 0;
  // How checkpoints are written.
  checkpoint::WriteMode write_mode = checkpoint::WriteMode::kInPlace;
  int64_t staging_bytes = checkpoint::SaverOptions().staging_bytes;
  // Of the group of all ranks: its topology, if any.
  collectives::CommunicatorOptions communicator;
  // Of all ranks.
  parallel::GridShape grid = {};
  // How matrices are cut, and what ranks that share them keep and send (parallel/tensor/).
  int tensor_shards = 1;
  bool sequence_parallel = false;
  int tensor_pieces = 1;
  bool keep_gathered = false;
  bool tensor_overlap = false;
  parallel::SumWire sum_wire = parallel::SumWire::kFloat32;
  ContextExchange context_exchange = ContextExchange::kUlysses;
  // Copies of the training, among which the data ranks are shared out, and how they come together;
  // 0: the ranks train one.
  int replicas = 0;
  replicas::OuterOptions outer = {};
  // Of the grid's pipeline, if it has one: what its stages run, and by what the model is cut.
  parallel::ScheduleChoice schedule = {};
  parallel::PartitionChoice partition = {};
  // What the cost model still has to choose, which then is in `zero`.
  OpenCodecs open = {};
  // What it says of that, lines for the user; empty: nothing was open, or is not chosen yet.
  std::string codec_choice = {};
  // Of //tune; a training does not go by it.
  AutotuningOptions autotuning = {};
  // Steps between two lines of progress; 0: not given.
  int64_t steps_per_print = 0;
  // Of data in epochs: what is behind the last whole batch of one is left out (TrainingData). Other
  // data have whole batches alone.
  bool drop_last = false;
  MonitorConfig monitor = {};
  // Of a step that is profiled.
  profile::Options profiler = {};
  // Steps between two comparisons of what several ranks have alike; 0: none.
  int64_t verify_replicas = 0;
  // Of each key that is accepted and has no effect: its path, its value and why.
  std::vector<std::string> without_effect = {};

  // Valid; without a pipeline of one stage.
  parallel::PipelineShape pipeline_shape() const {
    return {.schedule = schedule,
            .stages = grid.pipeline,
            .micro_batches = static_cast<int>(batch.gradient_accumulation_steps)};
  }
};

// Keys have DeepSpeed's names and meaning; config_keys.h has the table of them, and
// docs/configuration.md says what each of them may be. What is not given has DeepSpeed's default
// where it changes a result, and ZeroOptions' where it changes only memory or speed, with two
// exceptions. gradient_clipping is off, as in DeepSpeed before 0.19.3, whose default is 1.0 since.
// data_types.grad_accum_dtype is fp32, where DeepSpeed's default is the model's type. An optimizer
// is needed, from the file or by StepFlags::lr.
//
// No key is ignored, except those in sections of what is not supported, where these are off, and of
// fp16 or bf16 where these say "enabled": false, or "auto" beside a flag of another type; without
// that word they are off too, but their keys are read. What changes no result is accepted, and
// named in `without_effect`, where nothing follows from it. Any other value without effect is an
// error, as is one that asks for what is not so. null is as good as nothing.
//
// Errors       InvalidArgument, and Unimplemented for what DeepSpeed knows and Brigade does not
//              support yet: of each key and each flag that is refused, a line each where they are
//              several, its path or name, its value, and what it must be, what it contradicts, or
//              the nearest key. What goes by another key that is refused is found once that one is
//              right. Of text that is not JSON line and column. No exceptions, whatever the text.
// Paths in it begin at `folder`.
// `flags`, `step`: what is given there comes before what the file says.
absl::StatusOr<TrainConfig> ParseConfig(absl::string_view json, int ranks,
                                        absl::string_view folder = ".",
                                        const ModelParallelism& flags = {},
                                        const StepFlags& step = {});

// The same beside flags of which `refusals` has those that are refused by themselves: what goes by
// these is not looked at. Adds all else that is refused, and gives a config if that is nothing and
// all that it needs is known.
std::optional<TrainConfig> ParseConfig(absl::string_view json, int ranks, absl::string_view folder,
                                       const ModelParallelism& flags, const StepFlags& step,
                                       std::vector<Refusal>& refusals);

// The same of a file, whose path begins every error; NotFound and others as the system says.
absl::StatusOr<TrainConfig> ReadConfig(const std::string& path, int ranks,
                                       const ModelParallelism& flags = {},
                                       const StepFlags& step = {});
// The errors are those of the system alone; refusals do not name the file.
absl::StatusOr<std::optional<TrainConfig>> ReadConfig(const std::string& path, int ranks,
                                                      const ModelParallelism& flags,
                                                      const StepFlags& step,
                                                      std::vector<Refusal>& refusals);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_CONFIG_H_
