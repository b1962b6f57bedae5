// Trains a GPT on text: bazel run //examples/gpt:train -- --ranks=4 --config=FILE --data=FILE

#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/error_file.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/collectives/init.h"
#include "brigade/device/all_errors.h"
#include "brigade/device/command_line.h"
#include "brigade/device/context.h"
#include "brigade/device/counted.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/job_flags.h"
#include "brigade/examples/gpt/report.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/kernels/reduce/reduce_math.h"
#include "brigade/train/config/flag_refusals.h"
#include "brigade/train/interrupt.h"
#include "brigade/train/observers/history.h"
#include "brigade/train/process_flags.h"
#include "brigade/train/training_flags.h"
#include "brigade/train/watch.h"
#include "brigade/train/watch_flags.h"

ABSL_FLAG(
    int, ranks, 0,
    "ranks as threads of this process; default 4. With a launcher (mpirun, torchrun, srun) each "
    "process is a rank, and this must be their number or not given");
ABSL_FLAG(std::string, backend, "auto",
          "how ranks reach each other: threads, gloo or nccl. auto: threads without a launcher; "
          "with one gloo on the CPU, nccl on GPUs");
ABSL_FLAG(absl::Duration, save_grace_period, absl::Seconds(30),
          "how long the last checkpoint may take after Ctrl-C or SIGTERM, in addition to "
          "--grace_period");
ABSL_FLAG(absl::Duration, timeout, brigade::train::kDefaultTimeout,
          "how long a rank may be silent in a collective before all others give up, naming it");
ABSL_FLAG(absl::Duration, grace_period, absl::Milliseconds(600),
          "how long the steps in flight may take after Ctrl-C or SIGTERM. If they take longer, the "
          "training ends without them, and without the tables of memory and traffic");

namespace brigade::gpt {
namespace {

constexpr int kDefaultRanks = 4;
// What processes that have nothing to report wait in addition to the grace period, because mpirun
// kills all when the first is gone. With the default of 600 ms the sum stays under the second that
// mpirun itself waits.
constexpr absl::Duration kGraceOfOthers = absl::Milliseconds(250);
// What monitors and the terminal get when a step did not end after Ctrl-C.
constexpr absl::Duration kInterruptedPatience = absl::Milliseconds(100);

// Of the terminal that stdout is; 0 if it is none.
size_t TerminalColumns() {
  if (isatty(STDOUT_FILENO) == 0) return 0;
  winsize size = {};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// What is refused is as if it were not given.
JobRanks RanksOfFlags(const collectives::LaunchInfo& launch_info, train::Refusals& refusals) {
  using collectives::Backend;
  const auto named = collectives::ParseBackend(absl::GetFlag(FLAGS_backend));
  Backend backend = refusals.Check(named.status()) ? *named : Backend::kAuto;
  if (backend == Backend::kThreads && launch_info.size > 1) {
    refusals.Add("backend", " is threads, of one process, but the launcher has started ",
                 device::Counted(launch_info.size, "process"));
    backend = Backend::kAuto;
  }
  const bool needs_launcher = backend == Backend::kGloo || backend == Backend::kNccl;
  if (needs_launcher && !launch_info.launched) {
    refusals.Add("backend", " is ", collectives::Name(backend),
                 ", which needs a launcher: mpirun, torchrun or srun");
    backend = Backend::kAuto;
  }
  JobRanks ranks = {.processes = launch_info.launched && backend != Backend::kThreads,
                    .backend = backend};
  const int flag = absl::GetFlag(FLAGS_ranks);
  ranks.count = ranks.processes ? launch_info.size : flag > 0 ? flag : kDefaultRanks;
  if (flag < 0) {
    refusals.Add("ranks", " is ", flag, "; it must be at least 1");
  } else if (ranks.processes && flag != 0 && flag != launch_info.size) {
    refusals.Add("ranks", " is ", flag, ", but the launcher has started ",
                 device::Counted(launch_info.size, "process"), ", a rank each");
  }
  if (!ranks.processes && ranks.count > kernels::kMaxReduceArrays) {
    refusals.Add("ranks", " is ", flag, "; a group of threads has 1 to ",
                 kernels::kMaxReduceArrays);
    ranks.count = kDefaultRanks;
  }
  return ranks;
}

// `empty`: the flags that are given without a value.
absl::StatusOr<int> Main(const std::vector<std::string>& empty) {
  BRIGADE_ASSIGN_OR_RETURN(auto launch_info, collectives::LaunchInfoFromEnvironment());
  train::Refusals refusals;
  for (const std::string& flag : empty) refusals.Add(flag, " is given, but empty");
  const JobRanks ranks = RanksOfFlags(launch_info, refusals);
  const auto check = [&refusals](absl::string_view flag, absl::Duration value, absl::Duration least,
                                 absl::Duration most, absl::string_view range) {
    if (value >= least && value <= most) return;
    refusals.Add(flag, " is ", absl::FormatDuration(value), "; it must be ", range);
  };
  const absl::Duration timeout = absl::GetFlag(FLAGS_timeout);
  const absl::Duration grace_period = absl::GetFlag(FLAGS_grace_period);
  const absl::Duration save_grace = absl::GetFlag(FLAGS_save_grace_period);
  const absl::Duration none = absl::ZeroDuration(), day = absl::Hours(24);
  check("timeout", timeout, absl::Milliseconds(1), 365 * day, "1ms to 8760h");
  check("grace_period", grace_period, none, day, "0 to 24h");
  check("save_grace_period", save_grace, none, day, "0 to 24h");
  train::WatchOptions watch_options = train::WatchFlags(refusals);
  train::TrainerOptions options = train::ProcessFlags(ranks.processes, refusals);
  BRIGADE_ASSIGN_OR_RETURN(auto job, JobOfFlags(ranks, std::move(refusals)));
  train::Refusals of_files;
  train::CheckFiles(watch_options, job.config, of_files);
  BRIGADE_RETURN_IF_ERROR(of_files.status());
  // Before anything is said: whether there is such a device.
  const device::Device device = ranks.processes ? train::DeviceOf(job, launch_info) : job.device;
  BRIGADE_RETURN_IF_ERROR(
      device::Context::Create({.device = device, .compute_threads = 1}).status());

  const bool speaks = launch_info.rank == 0;
  const std::string description = DescribeJob(
      job, absl::StrCat(device::Counted(ranks.count, ranks.processes ? "process" : "thread"),
                        " on ", device::ToString(job.device.kind)));
  watch_options.rank = launch_info.rank;
  watch_options.threads = ranks.processes ? 0 : ranks.count;
  watch_options.progress = stdout;
  watch_options.columns = ranks.processes ? 0 : TerminalColumns();
  watch_options.units_of_step =
      static_cast<double>(job.config.batch.train_batch_size * job.model.context);
  watch_options.unit = "byte";
  watch_options.title = description;
  BRIGADE_ASSIGN_OR_RETURN(const auto watch, train::Watch::Create(job, watch_options));
  train::History history;
  if (speaks) {
    absl::PrintF("%s\n", description);
    if (!watch->url().empty()) absl::PrintF("Dashboard: %s\n", watch->url());
    std::fflush(stdout);
  }
  const NgramLosses ngrams =
      speaks ? NgramLosses{NgramLoss(job.corpus, 2), NgramLoss(job.corpus, 3)} : NgramLosses{};
  const auto report_progress = [&] {
    absl::PrintF("%s", ProgressReport(job, ngrams, history.steps(), history.evaluations()));
    std::fflush(stdout);
  };
  const absl::Duration save_grace_period =
      job.checkpoints.save.empty() ? absl::ZeroDuration() : save_grace;
  const absl::Duration patience =
      grace_period + save_grace_period + (speaks ? absl::ZeroDuration() : kGraceOfOthers);
  train::Interrupt interrupt(patience, [&] {
    watch->recorder().Finish().IgnoreError();
    if (!speaks) return;
    watch->Close(kInterruptedPatience);
    std::fputs(job.checkpoints.save.empty()
                   ? "\nInterrupted; a step did not end in time\n"
                   : "\nInterrupted; a step, or its checkpoint, did not end in time\n",
               stderr);
    report_progress();
  });
  const auto report = [&](const train::Outcome& outcome) {
    interrupt.Disarm();
    watch->Close(train::Watch::kPatience);
    report_progress();
    // Of what was trained by: the cost model may have chosen some of it.
    Job trained = job;
    if (outcome.zero.has_value()) trained.config.zero = *outcome.zero;
    absl::PrintF("%s", ResourceReport(trained, outcome.ranks));
    std::fflush(stdout);
    if (outcome.interrupted) std::fputs("Interrupted\n", stderr);
  };
  options.observer = &history;
  options.watch = watch.get();
  options.stop = &interrupt.stop();
  options.report = report;
  options.backend = ranks.backend;
  options.timeout = timeout;
  const absl::StatusOr<train::Outcome> outcome = ranks.processes
                                                     ? TrainAsProcess(job, launch_info, options)
                                                     : TrainOnThreads(job, ranks.count, options);
  interrupt.Disarm();
  const absl::Status traced = watch->recorder().Finish();
  // Also after an error: what was done until then.
  if (!outcome.ok()) {
    watch->Close(train::Watch::kPatience);
    if (speaks && !history.steps().empty()) report_progress();
  }
  BRIGADE_RETURN_IF_ERROR(outcome.status());
  const absl::Status reported = std::ferror(stdout) == 0
                                    ? absl::OkStatus()
                                    : absl::UnavailableError("cannot write the report");
  const absl::Status missing = device::AllErrors({outcome->incomplete, traced, reported});
  if (!outcome->interrupted) {
    BRIGADE_RETURN_IF_ERROR(missing);
    return 0;
  }
  // Whoever has interrupted it sees so by the code, whatever else there is.
  if (!missing.ok()) {
    std::fprintf(stderr, "train: %s\n", std::string(missing.message()).c_str());
  }
  return train::Interrupt::kExitCode;
}

}  // namespace
}  // namespace brigade::gpt

int main(int argc, char** argv) {
  // Whoever reads the lines of progress may go away: that is an error at the end, and none before.
  std::signal(SIGPIPE, SIG_IGN);
  absl::SetFlag(&FLAGS_keep, 2);
  brigade::train::ResumeFromSave(argc, argv);
  const absl::Status parsed = brigade::device::ParseFlags(
      argc, argv, "Trains a GPT on text, with every ZeRO stage and precision.");
  const absl::StatusOr<int> exit_code =
      parsed.ok() ? brigade::gpt::Main(brigade::device::EmptyFlags(argc, argv)) : parsed;
  if (exit_code.ok()) return *exit_code;
  std::fprintf(stderr, "train: %s\n", std::string(exit_code.status().message()).c_str());
  const absl::Status told = brigade::collectives::WriteErrorFile(exit_code.status());
  if (!told.ok()) std::fprintf(stderr, "train: %s\n", std::string(told.message()).c_str());
  return 1;
}
