#ifndef BRIGADE_TRAIN_CONFIG_CONFIG_KEYS_H_
#define BRIGADE_TRAIN_CONFIG_CONFIG_KEYS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "brigade/checkpoint/saver.h"
#include "brigade/optim/parameter_group.h"
#include "brigade/optim/schedule.h"
#include "brigade/profile/options.h"
#include "brigade/recompute/policy.h"
#include "brigade/replicas/options.h"
#include "brigade/train/config/autotuning.h"
#include "brigade/train/config/config.h"
#include "brigade/train/config/json_reader.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/batch_sizes.h"

namespace brigade::train {

// Steps between two rounds, where nobody says how many: short enough for the example's trainings.
inline constexpr int64_t kDefaultReplicaPeriod = 20;

// What the keys of a config write, before it is put together; with the values of keys that are not
// given.
struct Settings {
  // Given before the keys are read, some of which they replace.
  StepFlags flags = {};

  zero::BatchSizes batch;
  // Optimizer, loss scaler, clipping and type are put in later, from what follows.
  zero::ZeroOptions zero = {.stage = 0, .tied_apart = true};

  double gradient_clipping = 0.0;
  bool fp16 = false;
  bool bf16 = false;
  // DeepSpeed's other name for what these two say.
  std::optional<precision::DType> param_dtype;
  // Of fp16.
  optim::LossScaler loss_scaler = optim::LossScaler::Dynamic();
  // Of bf16.
  bool check_grad_overflow = true;
  // DeepSpeed's wishes that a section that is on must not have.
  bool fp16_masters = false, bf16_masters = false, bf16_states = false;

  optim::OptimizerKind optimizer = optim::OptimizerKind::kAdamW;
  bool adam_w_mode = true;
  optim::ParameterGroup group;
  // Takes the place of the group's.
  double lion_beta2 = 0.99;
  // Of OneBitAdam and OneBitLamb.
  int64_t freeze_step = optim::OptimizerOptions().freeze_step;
  kernels::OneBitLambCoefficients one_bit_lamb = {};
  optim::ZeroOneSchedule zero_one = {};
  // Of AdamW8bit and Adam8bit.
  optim::CodedMoments coded = {};
  bool fp32_tables = true;
  // Of Muon; betas and the rest take the place of the group's. The rate of matrices: none: `lr`.
  optim::MuonSettings muon = {};
  std::optional<double> muon_lr;
  double muon_momentum = 0.95, muon_beta1 = 0.9, muon_beta2 = 0.95, muon_eps = 1e-10;
  bool muon_nesterov = true;
  // Of Adafactor; beta1 takes the place of the group's momentum.
  kernels::AdafactorSettings adafactor = {};
  double adafactor_beta1 = 0;
  // Of AdamW8bit in the group's place.
  double adam_w8_decay = 0.01;
  // The index in `schedules` of the chosen one.
  int schedule = 0;
  std::array<optim::Schedule, 14> schedules = {
      optim::ConstantLR(),         optim::WarmupLR(),           optim::WarmupDecayLR(),
      optim::WarmupCosineLR(),     optim::OneCycle(),           optim::LRRangeTest(),
      optim::ConstantWithWarmup(), optim::LinearWithWarmup(),   optim::CosineWithWarmup(),
      optim::CosineWithWarmup(),   optim::CosineWithRestarts(), optim::PolynomialDecay(),
      optim::InverseSqrt(),        optim::WarmupStableDecay()};

  std::optional<int64_t> allgather_bucket_size;
  std::optional<int64_t> prefetch_bucket_size;
  std::optional<int64_t> sub_group_size;
  // DeepSpeed's name of brigade.shard_ranks; -1: not given.
  int mics_shard_size = -1;
  // DeepSpeed's number of near ranks; 1: there are none.
  int hpz_partition_size = 1;
  // DeepSpeed's wishes for codes on the wire.
  bool quantized_weights = false, quantized_frozen_weights = false, quantized_gradients = false;
  // Of zeropp_loco_param, where that is given.
  zero::LocoOptions loco = {};
  // Which of these, and of the next one, are "auto".
  OpenCodecs open = {};

  // None: gradients are reduced as they are.
  std::optional<zero::GradientCompression> gradient_compression;
  // Whose method is the one above.
  zero::CompressionOptions compression;

  std::optional<int64_t> steps_per_print;
  bool drop_last = false;
  bool wall_clock_breakdown = false;
  // A folder JOB in a folder PATH, which is where the training is started if it is empty.
  struct MonitorFolder {
    bool enabled = false;
    std::string output_path = "";
    std::string job_name = "DeepSpeedJobName";
  };
  MonitorFolder tensorboard, csv_monitor;
  int64_t verify_replicas = 0;
  int64_t checkpoint_staging_bytes = checkpoint::SaverOptions().staging_bytes;

  // None: what DeepSpeed's section says.
  std::optional<recompute::Policy> recompute;
  RecomputeTimes recompute_times = RecomputeTimes::kOperations;
  // DeepSpeed's wish, and Brigade's, which goes before it.
  bool cpu_checkpointing = false;
  std::optional<recompute::StashTier> stash;

  double dropout = 0;

  // Of files: the directory, as three sections may name it, and DeepSpeed's count of arrays in
  // memory.
  std::optional<std::string> file_directory, nvme_path, parameters_nvme_path;
  std::optional<int> state_arrays;

  // Checkpoints in files of each rank's own, on disks that other hosts do not see.
  bool use_node_local_storage = false;

  // Ranks that share a model: of its matrices DeepSpeed has two keys. 0: not given.
  int autotp_size = 0, tp_size = 0;
  int tensor_shards = 0;
  int sequence_parallel_size = 0;
  bool sequence_parallel = false;
  int tensor_pieces = 0;
  bool tensor_overlap = false;
  bool keep_gathered = false;
  parallel::SumWire sum_wire = parallel::SumWire::kFloat32;
  std::optional<ContextExchange> context_exchange;
  bool partition_activations = false;

  // Of a pipeline: 0 stages are not given. DeepSpeed's wishes are apart from ours; of its methods
  // one is a choice here, and of another why it is none.
  int stages = 0;
  std::optional<parallel::ScheduleChoice> pipeline_schedule;
  std::optional<parallel::PartitionChoice> partition, deepspeed_partition;
  std::string no_partition;
  std::optional<int> activation_checkpoint_interval;
  bool pipe_partitioned = false, grad_partitioned = false;

  // Copies that update locally; 0: not given.
  int replicas = 0;
  replicas::OuterOptions outer = {.period = kDefaultReplicaPeriod};

  // Of trials, for //tune.
  AutotuningOptions autotuning;
  // Of a step that is profiled, and where that goes.
  profile::Options profiler = {};
  // As DeepSpeed counts: the steps made before it.
  int64_t profile_step = 1;
  std::optional<std::string> profiler_output;

  // The path of a machine's figures, and how many ranks each node has.
  std::optional<std::string> topology;
  std::optional<int> ranks_per_node;
};

// All keys of a config, with those that DeepSpeed knows and Brigade does not support: the table by
// which files are read and refused, and from which docs/configuration.md is made. Pointers into
// `settings`, which must stay where it is.
Keys ConfigKeys(Settings& settings);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_CONFIG_CONFIG_KEYS_H_
