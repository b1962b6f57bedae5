// Trains a GPT on text: bazel run //examples/gpt:train -- --ranks=4 --config=FILE --data=FILE

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/error_file.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/collectives/init.h"
#include "brigade/device/byte_count.h"
#include "brigade/device/memory_stats.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/chrome_trace.h"
#include "brigade/examples/gpt/config.h"
#include "brigade/examples/gpt/console.h"
#include "brigade/examples/gpt/counted.h"
#include "brigade/examples/gpt/history.h"
#include "brigade/examples/gpt/interrupt.h"
#include "brigade/examples/gpt/metrics_file.h"
#include "brigade/examples/gpt/report.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/recompute/policy.h"
#include "brigade/zero/options.h"

ABSL_FLAG(
    int, ranks, 0,
    "ranks as threads of this process; default 4. With a launcher (mpirun, torchrun, srun) each "
    "process is a rank, and this must be their number or not given");
ABSL_FLAG(std::string, device, "cpu",
          "cpu, or cuda: threads share the first GPU, processes have a GPU each");
ABSL_FLAG(std::string, backend, "auto",
          "how ranks reach each other: threads, gloo or nccl. auto: threads without a launcher; "
          "with one gloo on the CPU, nccl on GPUs");
ABSL_FLAG(std::string, data, "",
          "text to train on, any bytes; its last tenth, at most 64 KiB, is held out. Default: the "
          "licences in "
          "/usr/share/common-licenses");
ABSL_FLAG(std::string, config, "",
          "DeepSpeed-style JSON: batch, optimizer, scheduler, precision, ZeRO stage");
ABSL_FLAG(int, stage, -1, "without --config: ZeRO stage, 0 to 3; default 2");
ABSL_FLAG(std::string, precision, "", "without --config: fp32, fp16 (default) or bf16");
ABSL_FLAG(std::string, recompute, "",
          "which activations the backward pass makes again: none, block (all but each block's "
          "input), selective (norms and GELU), segments:K (all but every K-th block's input), or "
          "budget:BYTES (whatever fits in so much memory in the least time; KiB, MiB and GiB may "
          "stand behind). Before the config's; default none");
ABSL_FLAG(std::string, recompute_times, "",
          "by what --recompute plans: operations, or measured (passes of one block, tried before "
          "the first step). Before the config's; default operations");
ABSL_FLAG(std::string, offload, "",
          "what is not kept on the device: none, optimizer (master and moments, and the update; "
          "from stage 1 on) or all (the weights between their uses too; stage 3). The training has "
          "the same bits. Before the config's; default none");
ABSL_FLAG(std::string, offload_to, "",
          "with --offload: where that is kept instead of on the device, host (default) or file: "
          "each rank has a file in --offload_dir");
ABSL_FLAG(std::string, offload_dir, "",
          "with --offload_to=file and --stash=file: a directory on a fast local disk; files there "
          "vanish with the training");
ABSL_FLAG(
    bool, delay_update, false,
    "with --offload: passes do not wait for the host's update, whose weights come a step late. "
    "Another training, after 40 exact steps");
ABSL_FLAG(std::string, device_limit, "",
          "how much memory of its device a rank may have, in bytes; KiB, MiB and GiB may stand "
          "behind. On the CPU too, to see what a smaller one takes; default: all there is");
ABSL_FLAG(std::string, device_link, "",
          "on the CPU, to see what a slower link takes: how many bytes a second go from the device "
          "to the host, and as many back, like --device_limit; default: as fast as memory is");
ABSL_FLAG(std::optional<double>, dropout, std::nullopt,
          "the share that is dropped of the embedding's output and of what attention and MLP of "
          "each block add to it, 0 to below 1. Before the config's; default 0");
ABSL_FLAG(
    std::string, stash, "",
    "where the inputs that --recompute=block and segments:K keep are between the passes: none "
    "(on the device), host, or file (in --offload_dir). Before the config's; default none");
ABSL_FLAG(int, tensor, 0,
          "ranks that share the matrices of the model; they divide its heads. Before the config's; "
          "default 1");
ABSL_FLAG(int, tensor_shards, 0,
          "of the model's matrices: --tensor must divide them, and changes no bit of the training. "
          "Before the config's; default as --tensor");
ABSL_FLAG(bool, sequence_parallel, false,
          "--tensor's ranks share the rows between products too: norms, dropout and residuals, and "
          "what of these recomputation keeps. Also where the config says so");
ABSL_FLAG(int, tensor_overlap, 0,
          "--tensor's ranks exchange rows beside products, which are cut into so many pieces. "
          "Another number of pieces may be another training in its last bits. Before the config's; "
          "default: products wait for what is exchanged");
ABSL_FLAG(int, context_parallel, 0,
          "ranks that share each text; they divide the heads of a tensor shard. Before the "
          "config's; default 1");
ABSL_FLAG(int64_t, steps, 800, "optimizer steps");
ABSL_FLAG(int64_t, evaluate_every, -1,
          "steps between evaluations of the held-out text; 0: only at begin and end. "
          "Default: a fifth of all steps");
ABSL_FLAG(uint64_t, seed, 1, "of weights and batches");
ABSL_FLAG(int64_t, layers, 4, "of the model");
ABSL_FLAG(int64_t, width, 128, "of the model");
ABSL_FLAG(int64_t, heads, 4, "of the model");
ABSL_FLAG(int64_t, context, 128, "bytes that the model sees at once");
ABSL_FLAG(std::string, metrics, "",
          "write metrics here, one JSON object a line; tools:plot draws them");
ABSL_FLAG(std::string, trace, "", "write a Chrome trace here, for ui.perfetto.dev");
ABSL_FLAG(std::string, save, "",
          "save checkpoints in this folder, at the end too, and when it is interrupted");
ABSL_FLAG(int64_t, save_every, 0, "steps between checkpoints, beside which the training goes on");
ABSL_FLAG(int, keep, 2, "how many checkpoints stay; 0: all");
ABSL_FLAG(
    std::string, resume, "",
    "go on from this checkpoint, or from the newest in this folder; alone, from the newest of "
    "--save, or from the beginning if there is none");
ABSL_FLAG(
    std::string, weights, "",
    "weights of a new training: a safetensors file, an index of several, or a folder with one "
    "of them; every parameter by its name and shape");
ABSL_FLAG(bool, fall_back, false,
          "where the newest checkpoint is damaged, set it aside and resume from the one before it");
ABSL_FLAG(std::vector<std::string>, may_differ, {},
          "fields that may be others here than in the checkpoint that is resumed, with commas "
          "between; an error names the first that differs");
ABSL_FLAG(absl::Duration, save_grace_period, absl::Seconds(30),
          "how long the last checkpoint may take after Ctrl-C or SIGTERM, in addition to "
          "--grace_period");
ABSL_FLAG(absl::Duration, timeout, brigade::gpt::kDefaultTimeout,
          "how long a rank may be silent in a collective before all others give up, naming it");
ABSL_FLAG(absl::Duration, grace_period, absl::Milliseconds(600),
          "how long the steps in flight may take after Ctrl-C or SIGTERM. If they take longer, the "
          "training ends without them, and without the tables of memory and traffic");

namespace brigade::gpt {
namespace {

constexpr int kDefaultRanks = 4;
// What --resume without a folder stands for.
constexpr char kFromSave[] = "\n";
// Rounded up to a multiple of the ranks.
constexpr int64_t kDefaultBatch = 16;

// What processes that have nothing to report wait in addition to the grace period, because mpirun
// kills all when the first is gone. With the default of 600 ms the sum stays under the second that
// mpirun itself waits.
constexpr absl::Duration kGraceOfOthers = absl::Milliseconds(250);

// Where the user stands, although `bazel run` moves the process.
std::string FromUsersFolder(const std::string& path) {
  const char* const folder = std::getenv("BUILD_WORKING_DIRECTORY");
  if (path.empty() || path[0] == '/' || folder == nullptr) return path;
  return absl::StrCat(folder, "/", path);
}

// The same, written in one way: two names of one folder are equal.
std::string FolderOfUser(const std::string& path) {
  if (path.empty()) return path;
  std::string folder = std::filesystem::path(FromUsersFolder(path)).lexically_normal().string();
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

absl::StatusOr<ModelParallelism> ParallelismOfFlags() {
  for (const auto& [name, number] :
       {std::pair("tensor", absl::GetFlag(FLAGS_tensor)),
        std::pair("tensor_shards", absl::GetFlag(FLAGS_tensor_shards)),
        std::pair("tensor_overlap", absl::GetFlag(FLAGS_tensor_overlap)),
        std::pair("context_parallel", absl::GetFlag(FLAGS_context_parallel))}) {
    if (number >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, " is ", number, "; it must be at least 1"));
  }
  return ModelParallelism{.tensor = absl::GetFlag(FLAGS_tensor),
                          .context = absl::GetFlag(FLAGS_context_parallel),
                          .tensor_shards = absl::GetFlag(FLAGS_tensor_shards),
                          .sequence_parallel = absl::GetFlag(FLAGS_sequence_parallel),
                          .tensor_overlap = absl::GetFlag(FLAGS_tensor_overlap)};
}

absl::StatusOr<TrainConfig> DefaultConfig(int ranks, int64_t steps,
                                          const ModelParallelism& parallelism) {
  std::string precision = absl::GetFlag(FLAGS_precision);
  if (precision.empty()) precision = "fp16";
  if (precision != "fp32" && precision != "fp16" && precision != "bf16") {
    return absl::InvalidArgumentError(
        absl::StrCat("--precision is \"", precision, "\"; it must be fp32, fp16 or bf16"));
  }
  const int stage = absl::GetFlag(FLAGS_stage) == -1 ? 2 : absl::GetFlag(FLAGS_stage);
  const std::string section =
      precision == "fp32" ? "" : absl::StrCat("\"", precision, R"(": {"enabled": true},)");
  // Of ranks that share texts, or a model, one is as many as all.
  const int64_t of_text =
      int64_t{std::max(parallelism.tensor, 1)} * std::max(parallelism.context, 1);
  const int64_t data_ranks = std::max<int64_t>(ranks / of_text, 1);
  const int64_t batch = (kDefaultBatch + data_ranks - 1) / data_ranks * data_ranks;
  // In fewer than 40 steps this learning rate throws the weights far off.
  const int64_t warm_up = std::max({steps / 20, std::min<int64_t>(steps / 2, 40), int64_t{2}});
  return ParseConfig(absl::StrFormat(
                         R"({"train_batch_size": %d, "gradient_clipping": 1.0, %s
              "optimizer": {"type": "AdamW",
                            "params": {"lr": 0.003, "betas": [0.9, 0.99], "weight_decay": 0.1}},
              "scheduler": {"type": "WarmupCosineLR",
                            "params": {"total_num_steps": %d, "warmup_num_steps": %d,
                                       "warmup_type": "linear", "cos_min_ratio": 0.05}},
              "zero_optimization": {"stage": %d}})",
                         batch, section, std::max<int64_t>(steps, 3), warm_up, stage),
                     ranks, ".", parallelism);
}

absl::StatusOr<Checkpoints> CheckpointsOfFlags() {
  Checkpoints checkpoints = {.save = FolderOfUser(absl::GetFlag(FLAGS_save)),
                             .save_every = absl::GetFlag(FLAGS_save_every),
                             .keep = absl::GetFlag(FLAGS_keep),
                             .fall_back = absl::GetFlag(FLAGS_fall_back),
                             .may_differ = absl::GetFlag(FLAGS_may_differ),
                             .weights = FromUsersFolder(absl::GetFlag(FLAGS_weights))};
  const std::string resume = absl::GetFlag(FLAGS_resume);
  checkpoints.resume = resume == kFromSave ? checkpoints.save : FolderOfUser(resume);
  const auto wrong = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(what...));
  };
  if (checkpoints.save_every < 0) return wrong("--save_every is ", checkpoints.save_every);
  if (checkpoints.keep < 0) return wrong("--keep is ", checkpoints.keep);
  if (checkpoints.save_every > 0 && checkpoints.save.empty()) {
    return wrong("--save_every is ", checkpoints.save_every, ", but --save names no folder");
  }
  if (resume == kFromSave && checkpoints.save.empty()) {
    return wrong("--resume names no folder, and neither does --save");
  }
  // With --resume alone they are those of the first start.
  if (!checkpoints.weights.empty() && !checkpoints.resume.empty() && resume != kFromSave) {
    return wrong("--weights are of a new training, --resume names one that goes on");
  }
  if (checkpoints.fall_back && checkpoints.resume.empty()) {
    return wrong("--fall_back is for --resume");
  }
  return checkpoints;
}

absl::Status SetOffload(zero::ZeroOptions& options) {
  const std::string what = absl::GetFlag(FLAGS_offload);
  const std::string where = absl::GetFlag(FLAGS_offload_to);
  const std::string directory = FromUsersFolder(absl::GetFlag(FLAGS_offload_dir));
  const bool delays = absl::GetFlag(FLAGS_delay_update);
  const auto wrong = [](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(text...));
  };
  if (!what.empty() && what != "none" && what != "optimizer" && what != "all") {
    return wrong("--offload is \"", what, "\"; it must be none, optimizer or all");
  }
  if (!where.empty() && where != "host" && where != "file") {
    return wrong("--offload_to is \"", where, "\"; it must be host or file");
  }
  const bool moves = what == "optimizer" || what == "all";
  if (!where.empty() && !moves) {
    return wrong("--offload_to is for --offload=optimizer and --offload=all");
  }
  if (where == "file" && directory.empty()) return wrong("--offload_to=file needs --offload_dir");
  if (!directory.empty()) {
    if (where != "file" && absl::GetFlag(FLAGS_stash) != "file") {
      return wrong("--offload_dir is for --offload_to=file and --stash=file");
    }
    options.offload.file.directory = directory;
  }
  if (what.empty() && !delays) return absl::OkStatus();
  zero::OffloadOptions& offload = options.offload;
  if (!what.empty()) {
    offload.optimizer_state = offload.parameters = device::Tier::kDevice;
    offload.host_share = 1;
    offload.delay_update = false;
  }
  const device::Tier tier = where == "file" ? device::Tier::kFile : device::Tier::kHost;
  if (moves) offload.optimizer_state = tier;
  if (what == "all") offload.parameters = tier;
  if (delays) offload.delay_update = true;
  const absl::Status valid = zero::Validate(options);
  if (valid.ok()) return valid;
  return absl::Status(
      valid.code(),
      absl::StrCat("--offload=", what, delays ? " --delay_update" : "", ": ", valid.message()));
}

absl::StatusOr<Job> JobOfFlags(int ranks) {
  Job job;
  job.model = {.layers = absl::GetFlag(FLAGS_layers),
               .heads = absl::GetFlag(FLAGS_heads),
               .width = absl::GetFlag(FLAGS_width),
               .context = absl::GetFlag(FLAGS_context)};
  job.steps = absl::GetFlag(FLAGS_steps);
  if (job.steps < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--steps is ", job.steps, "; it must be at least 1"));
  }
  job.evaluate_every = absl::GetFlag(FLAGS_evaluate_every);
  if (job.evaluate_every < 0) job.evaluate_every = (job.steps + 4) / 5;
  job.seed = absl::GetFlag(FLAGS_seed);
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device != "cpu" && device != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device is \"", device, "\"; it must be cpu or cuda"));
  }
  job.device = device == "cuda" ? device::Cuda() : device::Cpu();
  BRIGADE_ASSIGN_OR_RETURN(job.checkpoints, CheckpointsOfFlags());

  const std::string config = FromUsersFolder(absl::GetFlag(FLAGS_config));
  if (!config.empty() &&
      (absl::GetFlag(FLAGS_stage) != -1 || !absl::GetFlag(FLAGS_precision).empty())) {
    return absl::InvalidArgumentError(
        "--stage and --precision are in the file that --config names, not beside it");
  }
  BRIGADE_ASSIGN_OR_RETURN(const ModelParallelism parallelism, ParallelismOfFlags());
  BRIGADE_ASSIGN_OR_RETURN(job.config, config.empty() ? DefaultConfig(ranks, job.steps, parallelism)
                                                      : ReadConfig(config, ranks, parallelism));
  job.model.tensor_shards = job.config.tensor_shards;
  job.model.sequence_parallel = job.config.sequence_parallel;
  job.model.tensor_pieces = job.config.tensor_pieces;
  BRIGADE_RETURN_IF_ERROR(Validate(job.model));
  if (const std::string policy = absl::GetFlag(FLAGS_recompute); !policy.empty()) {
    const recompute::StashTier stash = job.config.recompute.stash;
    BRIGADE_ASSIGN_OR_RETURN(job.config.recompute, recompute::ParsePolicy(policy));
    job.config.recompute.stash = stash;
  }
  if (const std::string times = absl::GetFlag(FLAGS_recompute_times); !times.empty()) {
    const auto parsed = ParseRecomputeTimes(times);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--recompute_times: ", parsed.status().message()));
    }
    job.config.recompute_times = *parsed;
    if (job.config.recompute.kind == recompute::Policy::Kind::kNone) {
      return absl::InvalidArgumentError(
          absl::StrCat("--recompute_times is ", times, ", but no activations are made again"));
    }
  }
  BRIGADE_RETURN_IF_ERROR(SetOffload(job.config.zero));
  for (const auto& [name, text, bytes] :
       {std::tuple("device_limit", absl::GetFlag(FLAGS_device_limit), &job.device_limit_bytes),
        std::tuple("device_link", absl::GetFlag(FLAGS_device_link), &job.device_link)}) {
    if (text.empty()) continue;
    const std::optional<int64_t> parsed = device::ParseByteCount(text);
    if (!parsed.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " is \"", text, "\"; it must be a number of bytes"));
    }
    *bytes = *parsed;
  }
  if (const std::optional<double> dropout = absl::GetFlag(FLAGS_dropout); dropout.has_value()) {
    if (!(*dropout >= 0 && *dropout < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--dropout is ", *dropout, "; it must be at least 0 and below 1"));
    }
    job.config.dropout = *dropout;
  }
  if (const std::string stash = absl::GetFlag(FLAGS_stash); !stash.empty()) {
    const auto tier = recompute::ParseStashTier(stash);
    if (!tier.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--stash: ", tier.status().message()));
    }
    job.config.recompute.stash = *tier;
    if (*tier == recompute::StashTier::kFile && job.config.zero.offload.file.directory.empty()) {
      return absl::InvalidArgumentError("--stash=file needs --offload_dir");
    }
  }
  BRIGADE_RETURN_IF_ERROR(recompute::Validate(job.config.recompute));
  const std::string data = FromUsersFolder(absl::GetFlag(FLAGS_data));
  BRIGADE_ASSIGN_OR_RETURN(job.corpus, data.empty() ? ReadLicences() : ReadCorpus(data));
  BRIGADE_RETURN_IF_ERROR(CheckLength(job.corpus, job.model.context));
  return job;
}

// Of the terminal that stdout is; 0 if it is none.
size_t TerminalColumns() {
  if (isatty(STDOUT_FILENO) == 0) return 0;
  winsize size = {};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// Rank 0's observers, one after the other.
class Observers final : public Observer {
 public:
  void Add(Observer& observer) { all_.push_back(&observer); }
  absl::Status OnStep(const StepMetrics& metrics) override {
    for (Observer* each : all_) BRIGADE_RETURN_IF_ERROR(each->OnStep(metrics));
    return absl::OkStatus();
  }
  absl::Status OnEvaluation(const Evaluation& evaluation) override {
    for (Observer* each : all_) BRIGADE_RETURN_IF_ERROR(each->OnEvaluation(evaluation));
    return absl::OkStatus();
  }
  absl::Status OnStart(const Start& start) override {
    for (Observer* each : all_) BRIGADE_RETURN_IF_ERROR(each->OnStart(start));
    return absl::OkStatus();
  }
  absl::Status OnSave(const SaveEvent& save) override {
    for (Observer* each : all_) BRIGADE_RETURN_IF_ERROR(each->OnSave(save));
    return absl::OkStatus();
  }

 private:
  std::vector<Observer*> all_;
};

// Ends the training when its trace cannot be written.
class TraceObserver final : public Observer {
 public:
  explicit TraceObserver(const Recorder& recorder) : recorder_(recorder) {}
  absl::Status OnStep(const StepMetrics&) override { return recorder_.status(); }
  absl::Status OnEvaluation(const Evaluation&) override { return recorder_.status(); }

 private:
  const Recorder& recorder_;
};

// The trace of a process: FILE.json, or FILE.rank1.json and so on of the processes beside the
// first.
std::string TracePath(const std::string& path, int rank) {
  if (rank == 0) return path;
  const size_t dot = path.rfind('.');
  const size_t at =
      dot == std::string::npos || path.find('/', dot) != std::string::npos ? path.size() : dot;
  return absl::StrCat(path.substr(0, at), ".rank", rank, path.substr(at));
}

// Whether the ranks are processes that a launcher has started, or threads of this one.
absl::StatusOr<bool> RanksAreProcesses(collectives::Backend backend,
                                       const collectives::LaunchInfo& launch_info) {
  using collectives::Backend;
  if (backend == Backend::kThreads && launch_info.size > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--backend is threads, of one process, but the launcher has started ",
                     Counted(launch_info.size, "process")));
  }
  const bool needs_launcher = backend == Backend::kGloo || backend == Backend::kNccl;
  if (needs_launcher && !launch_info.launched) {
    return absl::InvalidArgumentError(absl::StrCat("--backend is ", collectives::Name(backend),
                                                   ", which needs a launcher: mpirun, torchrun "
                                                   "or srun"));
  }
  return launch_info.launched && backend != Backend::kThreads;
}

// The backend must be able to reach the device's memory, and have what the config asks for.
absl::Status CheckBackend(collectives::Backend backend, bool processes, const Job& job) {
  using collectives::Backend;
  const bool on_gpu = job.device.kind == device::DeviceKind::kCuda;
  if (backend == (on_gpu ? Backend::kGloo : Backend::kNccl)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--backend is ", collectives::Name(backend),
                     ", which does not work with --device=", device::ToString(job.device.kind)));
  }
  if (job.config.zero.algorithm == collectives::Algorithm::kNative && !(processes && on_gpu)) {
    return absl::InvalidArgumentError(
        absl::StrCat("brigade.algorithm is \"native\", but the backend ",
                     collectives::Name(processes ? Backend::kGloo : Backend::kThreads),
                     " has no collectives of its own; nccl has"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Main(const std::vector<char*>& arguments) {
  if (arguments.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", arguments[1], "\" is no flag; see --help"));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto launch_info, collectives::LaunchInfoFromEnvironment());
  BRIGADE_ASSIGN_OR_RETURN(const auto backend,
                           collectives::ParseBackend(absl::GetFlag(FLAGS_backend)));
  BRIGADE_ASSIGN_OR_RETURN(const bool processes, RanksAreProcesses(backend, launch_info));
  int ranks = absl::GetFlag(FLAGS_ranks);
  if (processes && ranks != 0 && ranks != launch_info.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks is ", ranks, ", but the launcher has started ",
                     Counted(launch_info.size, "process"), ", a rank each"));
  }
  if (processes) ranks = launch_info.size;
  if (ranks == 0) ranks = kDefaultRanks;
  if (ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks is ", ranks, "; it must be at least 1"));
  }
  const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  if (timeout < absl::Milliseconds(1) || timeout > absl::Hours(24 * 365)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--timeout is ", absl::FormatDuration(timeout), "; it must be 1ms to 8760h"));
  }
  const absl::Duration grace_period = absl::GetFlag(FLAGS_grace_period);
  if (grace_period < absl::ZeroDuration() || grace_period > absl::Hours(24)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--grace_period is ", absl::FormatDuration(grace_period), "; it must be 0 to 24h"));
  }
  const absl::Duration save_grace = absl::GetFlag(FLAGS_save_grace_period);
  if (save_grace < absl::ZeroDuration() || save_grace > absl::Hours(24)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--save_grace_period is ", absl::FormatDuration(save_grace), "; it must be 0 to 24h"));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto job, JobOfFlags(ranks));
  BRIGADE_RETURN_IF_ERROR(CheckBackend(backend, processes, job));
  if (processes && job.device.kind == device::DeviceKind::kCuda) {
    job.device = device::Cuda(launch_info.local_rank);
  }

  const bool speaks = launch_info.rank == 0;
  std::unique_ptr<ChromeTrace> trace;
  if (const std::string path = FromUsersFolder(absl::GetFlag(FLAGS_trace)); !path.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(trace, ChromeTrace::Create(TracePath(path, launch_info.rank),
                                                        !job.checkpoints.resume.empty()));
  }
  Observers observers;
  History history;
  observers.Add(history);
  std::unique_ptr<MetricsFile> metrics;
  if (const std::string path = FromUsersFolder(absl::GetFlag(FLAGS_metrics));
      speaks && !path.empty()) {
    BRIGADE_ASSIGN_OR_RETURN(metrics, MetricsFile::Create(path));
    observers.Add(*metrics);
  }
  // mpirun gives its processes terminals, wherever what they write goes.
  Console console(stdout, processes ? 0 : TerminalColumns(), job.steps,
                  static_cast<double>(job.config.batch.train_batch_size * job.model.context));
  observers.Add(console);

  if (speaks) {
    const std::string name = absl::StrCat(Counted(ranks, processes ? "process" : "thread"), " on ",
                                          device::ToString(job.device.kind));
    absl::PrintF("%s\n", DescribeJob(job, name));
    std::fflush(stdout);
  }
  const NgramLosses ngrams =
      speaks ? NgramLosses{NgramLoss(job.corpus, 2), NgramLoss(job.corpus, 3)} : NgramLosses{};
  const auto report_progress = [&] {
    absl::PrintF("%s", ProgressReport(job, ngrams, history.steps(), history.evaluations()));
    std::fflush(stdout);
  };
  Recorder recorder(trace.get());
  TraceObserver trace_observer(recorder);
  observers.Add(trace_observer);
  const absl::Duration save_grace_period =
      job.checkpoints.save.empty() ? absl::ZeroDuration() : save_grace;
  const absl::Duration patience =
      grace_period + save_grace_period + (speaks ? absl::ZeroDuration() : kGraceOfOthers);
  Interrupt interrupt(patience, [&] {
    recorder.Finish().IgnoreError();
    if (!speaks) return;
    std::fputs(job.checkpoints.save.empty()
                   ? "\nInterrupted; a step did not end in time\n"
                   : "\nInterrupted; a step, or its checkpoint, did not end in time\n",
               stderr);
    report_progress();
  });
  const auto report = [&](const Outcome& outcome) {
    interrupt.Disarm();
    report_progress();
    absl::PrintF("%s", ResourceReport(job, outcome.ranks));
    std::fflush(stdout);
    if (outcome.interrupted) std::fputs("Interrupted\n", stderr);
  };
  const Watchers watchers = {&observers, recorder, interrupt.stop(), report};
  const absl::StatusOr<Outcome> outcome =
      processes ? TrainAsProcess(job, launch_info, backend, watchers, timeout)
                : TrainOnThreads(job, ranks, watchers, timeout);
  interrupt.Disarm();
  const absl::Status traced = recorder.Finish();
  // Also after an error: what was done until then.
  if (speaks && !outcome.ok() && !history.steps().empty()) report_progress();
  BRIGADE_RETURN_IF_ERROR(outcome.status());
  BRIGADE_RETURN_IF_ERROR(traced);
  if (std::ferror(stdout) != 0) return absl::UnavailableError("cannot write the report");
  return outcome->interrupted ? Interrupt::kExitCode : 0;
}

}  // namespace
}  // namespace brigade::gpt

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("Trains a GPT on text, with every ZeRO stage and precision");
  // A flag of a text has one; for --resume that is the folder of --save.
  std::string resume = absl::StrCat("--resume=", brigade::gpt::kFromSave);
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "--resume" || argument == "-resume") argv[i] = resume.data();
  }
  const absl::StatusOr<int> exit_code = brigade::gpt::Main(absl::ParseCommandLine(argc, argv));
  if (exit_code.ok()) return *exit_code;
  std::fprintf(stderr, "train: %s\n", std::string(exit_code.status().message()).c_str());
  const absl::Status told = brigade::collectives::WriteErrorFile(exit_code.status());
  if (!told.ok()) std::fprintf(stderr, "train: %s\n", std::string(told.message()).c_str());
  return 1;
}
