// Finds the fastest configuration of a training that fits in memory:
// bazel run //tune -- --config=ds.json --model=4x128x4x128 --ranks=4 --device_limit=64MiB

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "brigade/checkpoint/strict_json.h"
#include "brigade/device/byte_count.h"
#include "brigade/device/command_line.h"
#include "brigade/device/counted.h"
#include "brigade/device/device_memory.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/examples/gpt/job_flags.h"
#include "brigade/kernels/reduce/reduce_math.h"
#include "brigade/train/config/flag_refusals.h"
#include "brigade/train/interrupt.h"
#include "brigade/train/times/recorder.h"
#include "brigade/tune/report.h"
#include "brigade/tune/setup.h"
#include "brigade/tune/tuner.h"
#include "brigade/tune/world.h"

ABSL_FLAG(std::string, model, "",
          "gpt2, gpt2-medium, gpt2-large, gpt2-xl, or LAYERSxWIDTHxHEADSxCONTEXT; without it "
          "--layers, --width, --heads and --context say it");
ABSL_FLAG(int, ranks, 4, "ranks of the training, which are threads of this process here");
ABSL_FLAG(std::vector<std::string>, tune, {},
          "what is tuned although the config has a value: stage, micro_batch, bucket, live_units, "
          "algorithm, recompute, offload, tensor, context, pipeline, grid (the last three) or all, "
          "with commas between. Tuned is besides what the config does not say, or leaves \"auto\"");
ABSL_FLAG(std::vector<std::string>, fixed, {}, "what of these is not tuned");
ABSL_FLAG(
    std::string, output, "",
    "where the best config is written; default: beside --config, with .tuned.json at its end");
ABSL_FLAG(
    std::optional<brigade::device::ByteCount>, host_limit, std::nullopt,
    "how much memory of the host a rank may have, like --device_limit; default: its share of the "
    "machine's, with that of a device that is the CPU");
ABSL_FLAG(std::optional<int>, trials, std::nullopt,
          "configurations that are measured; 0: none, the best predicted one is written. Before "
          "the config's tuner_num_trials; default 5");
ABSL_FLAG(int, rounds, 4, "times that the best of these are measured, by turns");
ABSL_FLAG(absl::Duration, grace_period, absl::Seconds(5),
          "how long a trial may take to end after Ctrl-C or SIGTERM, until the tuner ends without "
          "it");

namespace brigade::tune {
namespace {

// A flag of the trainer (examples/gpt/job_flags.h), which this program has too.
template <typename T>
T TrainersFlag(absl::string_view name) {
  return absl::FindCommandLineFlag(name)->TryGet<T>().value_or(T());
}
void SetTrainersFlag(absl::string_view name, int64_t value) {
  std::string error;
  absl::FindCommandLineFlag(name)->ParseFrom(absl::StrCat(value), &error);
}

// One configuration to be shown, which the thread of an interrupt may ask for.
class BestSoFar {
 public:
  void Set(std::string text) {
    device::MutexLock lock(mutex_);
    text_ = std::move(text);
  }
  std::string text() const {
    device::MutexLock lock(mutex_);
    return text_;
  }

 private:
  mutable device::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};

std::vector<Dimension> DimensionsOf(absl::string_view flag, const std::vector<std::string>& names,
                                    train::Refusals& refusals) {
  std::vector<Dimension> all;
  for (const std::string& name : names) {
    const auto parsed = ParseDimensions(name);
    if (!parsed.ok()) {
      refusals.Add(flag, ": ", parsed.status().message());
      continue;
    }
    all.insert(all.end(), parsed->begin(), parsed->end());
  }
  return all;
}

SetupFlags SetupFlagsOf(train::Refusals& refusals) {
  SetupFlags flags = {.ranks = absl::GetFlag(FLAGS_ranks),
                      .batch = TrainersFlag<std::optional<int64_t>>("batch").value_or(0)};
  if (flags.ranks < 1 || flags.ranks > kernels::kMaxReduceArrays) {
    refusals.Add("ranks", " is ", flags.ranks, "; a group of threads has 1 to ",
                 kernels::kMaxReduceArrays);
  }
  flags.tuned = DimensionsOf("tune", absl::GetFlag(FLAGS_tune), refusals);
  flags.kept = DimensionsOf("fixed", absl::GetFlag(FLAGS_fixed), refusals);
  const auto given = [&](const auto& flag, Dimension dimension, int& value) {
    if (!flag.has_value()) return;
    value = *flag;
    flags.given.push_back(dimension);
  };
  given(TrainersFlag<std::optional<int>>("tensor"), Dimension::kTensor, flags.tensor);
  given(TrainersFlag<std::optional<int>>("context_parallel"), Dimension::kContext, flags.context);
  given(TrainersFlag<std::optional<int>>("pipeline"), Dimension::kPipeline, flags.pipeline);
  if (!TrainersFlag<std::string>("offload").empty()) flags.given.push_back(Dimension::kOffload);
  if (!TrainersFlag<std::string>("recompute").empty()) flags.given.push_back(Dimension::kRecompute);
  for (const Dimension each : flags.given) {
    const std::vector<std::string> names = absl::GetFlag(FLAGS_tune);
    if (std::find(names.begin(), names.end(), Name(each)) != names.end()) {
      refusals.Add("tune", ": a flag of the trainer says what ", Name(each), " is");
    }
  }
  return flags;
}

// What of the machine's memory is a rank's, if all have as much.
int64_t ShareOfMachine(int ranks) {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / ranks;
}

// Of a GPU's free memory, what ranks plan with.
constexpr int64_t kGpuParts = 10, kGpuPartsOfBooks = 9;

absl::StatusOr<Limits> LimitsOfFlags(int ranks) {
  Limits limits = {.host_bytes = ShareOfMachine(ranks)};
  if (const auto host = absl::GetFlag(FLAGS_host_limit); host.has_value()) {
    limits.host_bytes = host->value;
  }
  const std::string text = TrainersFlag<std::string>("device_limit");
  const std::optional<int64_t> bytes = device::ParseByteCount(text);
  if (bytes.has_value()) {
    limits.device_bytes = *bytes;
  } else if (!text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device_limit is \"", text, "\"; it must be a number of bytes"));
  } else if (TrainersFlag<std::string>("device") == "cuda") {
    BRIGADE_ASSIGN_OR_RETURN(const device::DeviceMemory memory, device::MemoryOf(device::Cuda()));
    // The ranks share it here, and beside what the books have of each there are the driver's
    // contexts and the libraries' workspaces.
    limits.device_bytes = memory.free / ranks / kGpuParts * kGpuPartsOfBooks;
  } else {
    limits.device_bytes = limits.both_bytes = ShareOfMachine(ranks);
  }
  return limits;
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string OutputOf(const std::string& config) {
  if (const std::string output = absl::GetFlag(FLAGS_output); !output.empty()) {
    return device::FromUsersFolder(output);
  }
  constexpr absl::string_view kEnd = ".json";
  const bool has_end = absl::EndsWith(config, kEnd);
  return absl::StrCat(config.substr(0, config.size() - (has_end ? kEnd.size() : 0)), ".tuned.json");
}

absl::Status WriteConfig(const std::string& path, const std::string& text) {
  BRIGADE_ASSIGN_OR_RETURN(auto file, device::FileReplacement::Begin(path));
  file.Write(text);
  file.Write("\n");
  return file.Commit();
}

std::string WordOf(const std::vector<Dimension>& dimensions) {
  return absl::StrJoin(dimensions, ", ",
                       [](std::string* out, Dimension each) { absl::StrAppend(out, Name(each)); });
}

// What flags say of the model, which --model stands before.
gpt::ModelOptions ModelOfFlags(train::Refusals& refusals) {
  if (const std::string name = absl::GetFlag(FLAGS_model); !name.empty()) {
    const auto model = ParseModel(name);
    if (!model.ok()) {
      refusals.Add("model", ": ", model.status().message());
    } else {
      SetTrainersFlag("layers", model->layers);
      SetTrainersFlag("width", model->width);
      SetTrainersFlag("heads", model->heads);
      SetTrainersFlag("context", model->context);
    }
  }
  const gpt::ModelOptions model = {.layers = TrainersFlag<int64_t>("layers"),
                                   .heads = TrainersFlag<int64_t>("heads"),
                                   .width = TrainersFlag<int64_t>("width"),
                                   .context = TrainersFlag<int64_t>("context")};
  refusals.Check(gpt::Validate(model));
  return model;
}

void CheckNumbers(train::Refusals& refusals) {
  if (const int trials = absl::GetFlag(FLAGS_trials).value_or(0); trials < 0) {
    refusals.Add("trials", " is ", trials, "; it must be at least 0");
  }
  if (const int rounds = absl::GetFlag(FLAGS_rounds); rounds < 1) {
    refusals.Add("rounds", " is ", rounds, "; it must be at least 1");
  }
  const absl::Duration grace = absl::GetFlag(FLAGS_grace_period);
  if (grace < absl::ZeroDuration() || grace > absl::Hours(24)) {
    refusals.Add("grace_period", " is ", absl::FormatDuration(grace), "; it must be 0 to 24h");
  }
}

TrialPlan PlanOf(const train::AutotuningOptions& options) {
  const bool is_model_based = options.tuner_type == train::TunerType::kModelBased;
  const std::optional<int> trials = absl::GetFlag(FLAGS_trials);
  return {.trials = trials.has_value()
                        ? *trials
                        : options.tuner_num_trials.value_or(
                              is_model_based ? train::kTrialsOfModel : train::kTrialsOfOthers),
          .early_stopping = options.tuner_early_stopping,
          .rounds = absl::GetFlag(FLAGS_rounds)};
}

// What a run has beside the config and the model.
struct Run {
  const std::string path;
  const TuningSetup& setup;
  const gpt::ModelOptions model;
  const int ranks;
  const Limits limits;
  const MakeJob make_job;
  const gpt::Corpus& corpus;
};

// Nodes, which all candidates have alike: of the first that can be.
collectives::CommunicatorOptions CommunicatorOf(const Run& run) {
  for (const Point& point : PointsOf(run.setup.space, run.setup.totals)) {
    const auto job = run.make_job(WithPoint(run.setup.config, point, run.setup.totals).dump());
    if (job.ok()) return job->config.communicator;
  }
  return {};
}

void PrintHeading(const Run& run, size_t points) {
  absl::PrintF(
      "GPT of %s, width %d, %s, context %d; %d texts a step on %s, at most %d bytes of the device "
      "each\nTuned: %s\nRanks are threads of this process on %s, for which what is measured and "
      "predicted stands. A training of processes, on\nseveral hosts or GPUs, has other times, and "
      "other workspaces of its collectives.\nLooking at %s\n\n",
      device::Counted(run.model.layers, "layer"), run.model.width,
      device::Counted(run.model.heads, "head"), run.model.context, run.setup.totals.batch,
      device::Counted(run.ranks, "rank"), run.limits.device_bytes, WordOf(run.setup.tuned),
      device::Counted(Processors(), "processor"),
      device::Counted(static_cast<int64_t>(points), "configuration"));
  std::fflush(stdout);
}

// Nothing fits, or nothing can be: why, and what would help.
absl::Status TellThatNothingFits(const Run& run, const Search& search, RankModel& rank_model) {
  if (!search.smallest.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(run.path, ": none of the configurations can be"));
  }
  BRIGADE_ASSIGN_OR_RETURN(
      const std::vector<Help> helps,
      FindHelp(run.setup, run.model, *search.smallest, run.make_job, run.limits, rank_model));
  absl::PrintF("%s", DescribeNoFit(search, run.limits, helps));
  return absl::ResourceExhaustedError(
      absl::StrCat(run.path, ": no configuration fits; the smallest is ",
                   ShortBytes(search.smallest->prediction, run.limits), " bytes short"));
}

// Predicts all, and tries some. Cancelled if it was interrupted before the first trial.
absl::Status Measure(const Run& run, const TrialPlan& plan, World& world, train::Recorder& recorder,
                     Figures& figures, RankModel& rank_model, std::vector<Candidate>& candidates,
                     const std::atomic<bool>& stop, BestSoFar& best_so_far) {
  const train::AutotuningOptions& options = run.setup.options;
  BRIGADE_RETURN_IF_ERROR(MeasureMachine(world, figures));
  BRIGADE_RETURN_IF_ERROR(
      PredictTimes(run.corpus, world, recorder, figures, rank_model, candidates, stop));
  const std::vector<size_t> order =
      OrderOfTrials(candidates, options.tuner_type, TrainersFlag<uint64_t>("seed"));
  const TrialSteps steps = {.first = options.start_profile_step, .last = options.end_profile_step};
  int done = 0;
  RunTrials(order, plan, TrialsOnThreads(run.ranks, steps, run.corpus, run.limits, stop),
            candidates, stop, [&](size_t index) {
              const Candidate& each = candidates[index];
              absl::PrintF("trial %d: %s: %s\n", ++done, ToString(each.point),
                           each.measured.has_value() ? ShowMetric(each.measured->seconds, each.job,
                                                                  options.metric, run.ranks)
                                                     : std::string(each.failed.message()));
              std::fflush(stdout);
              if (const auto best = BestOf(candidates); best.has_value()) {
                best_so_far.Set(absl::StrCat("The best so far: ", ToString(candidates[*best].point),
                                             "\n", candidates[*best].text, "\n"));
              }
            });
  if (BestOf(candidates).has_value()) return absl::OkStatus();
  if (stop.load()) return absl::CancelledError("interrupted");
  absl::PrintF("%s", TrialTable(candidates, options.metric, run.ranks));
  return absl::InternalError("no trial has come to its end");
}

absl::Status TellBest(const Run& run, const std::vector<Candidate>& candidates, bool interrupted) {
  const std::optional<size_t> measured = BestOf(candidates);
  const Candidate& best =
      candidates[measured.value_or(OrderOfTrials(candidates, train::TunerType::kModelBased, 1)[0])];
  if (measured.has_value()) {
    absl::PrintF("\n%s%s", TrialTable(candidates, run.setup.options.metric, run.ranks),
                 OrderReport(candidates));
  }
  BRIGADE_ASSIGN_OR_RETURN(const std::string estimates, EstimateTable(best.job));
  absl::PrintF("\n%s\n%s: %s\nIts memory, of %d bytes of rank %d: %s\n", estimates,
               interrupted            ? "The best so far"
               : measured.has_value() ? "The best"
                                      : "The best by prediction",
               ToString(best.point), best.prediction.needs.device_bytes, best.prediction.rank,
               DescribeTerms(best.prediction.needs.terms, device::Tier::kDevice));
  const std::string output = OutputOf(run.path);
  if (const absl::Status status = WriteConfig(output, best.text); !status.ok()) {
    // The search may have taken long.
    absl::PrintF("%s\n", best.text);
    return status;
  }
  absl::PrintF("Written to %s\n", output);
  return absl::OkStatus();
}

absl::StatusOr<int> Main(const std::vector<std::string>& empty) {
  train::Refusals refusals;
  for (const std::string& flag : empty) refusals.Add(flag, " is given, but empty");
  const std::string path = device::FromUsersFolder(TrainersFlag<std::string>("config"));
  if (path.empty()) refusals.Add("config", " is not given; it must name a DeepSpeed config");
  const SetupFlags flags = SetupFlagsOf(refusals);
  CheckNumbers(refusals);
  const gpt::ModelOptions model = ModelOfFlags(refusals);
  BRIGADE_RETURN_IF_ERROR(refusals.status());
  BRIGADE_ASSIGN_OR_RETURN(const Limits limits, LimitsOfFlags(flags.ranks));
  BRIGADE_ASSIGN_OR_RETURN(const std::string text,
                           device::ReadFile(path, checkpoint::JsonLimits().bytes));
  const absl::StatusOr<TuningSetup> setup = SetupOf(text, model, flags);
  if (!setup.ok()) {
    return absl::Status(setup.status().code(), absl::StrCat(path, ": ", setup.status().message()));
  }
  // Whether the result can be written, before it is looked for.
  BRIGADE_RETURN_IF_ERROR(device::FileReplacement::Begin(OutputOf(path)).status());
  const std::string data = device::FromUsersFolder(TrainersFlag<std::string>("data"));
  BRIGADE_ASSIGN_OR_RETURN(const gpt::Corpus corpus,
                           data.empty() ? gpt::ReadLicences() : gpt::ReadCorpus(data));
  BRIGADE_RETURN_IF_ERROR(gpt::CheckLength(corpus, model.context));
  const gpt::JobRanks ranks = {.count = flags.ranks, .backend = collectives::Backend::kThreads};
  const Run run = {
      .path = path,
      .setup = *setup,
      .model = model,
      .ranks = flags.ranks,
      .limits = limits,
      .make_job =
          [&](const std::string& config) {
            return gpt::JobOfFlags(ranks, {}, {config, FolderOf(path), /*reads_texts=*/false});
          },
      .corpus = corpus};
  const bool on_gpu = TrainersFlag<std::string>("device") == "cuda";
  train::Recorder recorder(nullptr);
  BRIGADE_ASSIGN_OR_RETURN(auto world,
                           World::Create(run.ranks, on_gpu ? device::Cuda() : device::Cpu(),
                                         CommunicatorOf(run), &recorder.tracer()));
  Figures figures;
  figures.topology.ranks_of_node = {run.ranks};
  figures.topology.inside = figures.topology.between = {1e-5, 5e9};
  figures.processors = Processors();
  RankModel rank_model(*world, figures);
  BestSoFar best_so_far;
  train::Interrupt interrupt(absl::GetFlag(FLAGS_grace_period), [&] {
    std::fprintf(stderr, "\nInterrupted; a trial did not end in time\n%s",
                 best_so_far.text().c_str());
  });
  const auto when_interrupted = [&](const absl::Status& status) -> absl::StatusOr<int> {
    interrupt.Disarm();
    if (!absl::IsCancelled(status)) return status;
    std::fputs("Interrupted before a trial\n", stderr);
    return train::Interrupt::kExitCode;
  };

  PrintHeading(run, PointsOf(setup->space, setup->totals).size());
  absl::StatusOr<Search> search = FindFitting(setup->config, setup->space, setup->totals,
                                              run.make_job, limits, rank_model, interrupt.stop());
  if (!search.ok()) return when_interrupted(search.status());
  absl::PrintF("%s\n", DescribeSearch(*search));
  std::fflush(stdout);
  std::vector<Candidate>& candidates = search->fitting;
  if (candidates.empty()) {
    interrupt.Disarm();
    return TellThatNothingFits(run, *search, rank_model);
  }
  if (const auto sizes = setup->options.num_tuning_micro_batch_sizes; sizes.has_value()) {
    KeepLargestMicroBatches(*sizes, candidates);
  }
  const TrialPlan plan = PlanOf(setup->options);
  if (plan.trials > 0) {
    const absl::Status status = Measure(run, plan, *world, recorder, figures, rank_model,
                                        candidates, interrupt.stop(), best_so_far);
    if (!status.ok()) return when_interrupted(status);
  } else {
    for (Candidate& each : candidates) {
      if (interrupt.stop().load()) return when_interrupted(absl::CancelledError(""));
      BRIGADE_ASSIGN_OR_RETURN(each.prediction, rank_model.Predict(each.job));
    }
  }
  interrupt.Disarm();
  const bool interrupted = interrupt.stop().load();
  BRIGADE_RETURN_IF_ERROR(TellBest(run, candidates, interrupted));
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return absl::UnavailableError("cannot write the report");
  }
  if (interrupted) std::fputs("Interrupted\n", stderr);
  return interrupted ? train::Interrupt::kExitCode : 0;
}

}  // namespace
}  // namespace brigade::tune

int main(int argc, char** argv) {
  const absl::Status parsed = brigade::device::ParseFlags(
      argc, argv, "Finds the fastest configuration of a training that fits in memory.");
  const absl::StatusOr<int> exit_code =
      parsed.ok() ? brigade::tune::Main(brigade::device::EmptyFlags(argc, argv)) : parsed;
  if (exit_code.ok()) return *exit_code;
  std::fprintf(stderr, "tune: %s\n", std::string(exit_code.status().message()).c_str());
  return 1;
}
