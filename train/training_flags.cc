#include "brigade/train/training_flags.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/checkpoint/weight_files.h"
#include "brigade/device/command_line.h"
#include "brigade/device/files.h"

ABSL_FLAG(std::string, profile, "",
          "profile a step, and write here what its units and kernels take and are limited by: "
          "flops_profiler.output_file. Before the config's");
ABSL_FLAG(std::optional<int64_t>, profile_step, std::nullopt,
          "profile this step, the first being 1, and print it unless --profile names a file: "
          "flops_profiler.profile_step and 1. Before the config's; default 2");
ABSL_FLAG(std::string, ceilings, "",
          "of a profile: a JSON file of what the machine can do, which is measured and written if "
          "it is not there; default: it is measured, and not kept");
ABSL_FLAG(std::optional<double>, peak_tflops, std::nullopt,
          "of a profile: what a rank's device could make of products at most, for MFU and HFU; "
          "default: as --ceilings says");
ABSL_FLAG(std::string, save, "",
          "save checkpoints in this folder, at the end too, and when it is interrupted");
ABSL_FLAG(int64_t, save_every, 0, "steps between checkpoints, beside which the training goes on");
ABSL_FLAG(int, keep, 0, "how many checkpoints stay; 0: all");
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
ABSL_FLAG(std::string, digest, "",
          "write checksums of each unit's gradients and weights here; tools:first_difference finds "
          "where two trainings differ (docs/digests.md)");
ABSL_FLAG(int64_t, digest_every, 10, "steps between two --digest");
ABSL_FLAG(std::optional<int64_t>, verify_replicas, std::nullopt,
          "steps between two comparisons of the checksums of what several ranks have alike; the "
          "training ends with an error that names the rank that has other bits. 0: none. Before "
          "the config's; default 0");
ABSL_FLAG(std::string, digest_dump, "",
          "write all gradients and weights of --digest_dump_step to this folder, which is new");
ABSL_FLAG(int64_t, digest_dump_step, 0, "the step of --digest_dump; the first is 1");

namespace brigade::train {
namespace {

// What --resume without a folder stands for.
constexpr char kFromSave[] = "\n";

// A path from the folder where the user is, written in one way: two names of one folder are equal.
std::string FolderOfUser(const std::string& path) {
  if (path.empty()) return path;
  std::string folder =
      std::filesystem::path(device::FromUsersFolder(path)).lexically_normal().string();
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

// Why there can be no such folder, as far as that is seen without making it; empty: it may be made,
// or is there.
std::string WhyNoFolder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path there = path;
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  if (there.empty()) there = ".";
  if (!fs::is_directory(there, error)) return absl::StrCat(there.string(), " is no folder");
  return access(there.c_str(), W_OK | X_OK) == 0 ? "" : std::strerror(errno);
}

}  // namespace

void ResumeFromSave(int argc, char** argv) {
  static std::string& resume = *new std::string(absl::StrCat("--resume=", kFromSave));
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    if (argument == "--") break;
    // Else the next word is its value.
    const bool is_alone = i + 1 == argc || argv[i + 1][0] == '-';
    if (is_alone && (argument == "--resume" || argument == "-resume")) argv[i] = resume.data();
  }
}

std::string DigestPath() { return device::FromUsersFolder(absl::GetFlag(FLAGS_digest)); }

Checkpoints CheckpointFlags(Refusals& refusals) {
  Checkpoints checkpoints = {.save = FolderOfUser(absl::GetFlag(FLAGS_save)),
                             .save_every = absl::GetFlag(FLAGS_save_every),
                             .keep = absl::GetFlag(FLAGS_keep),
                             .fall_back = absl::GetFlag(FLAGS_fall_back),
                             .may_differ = absl::GetFlag(FLAGS_may_differ),
                             .weights = device::FromUsersFolder(absl::GetFlag(FLAGS_weights))};
  const std::string resume = absl::GetFlag(FLAGS_resume);
  checkpoints.resume = resume == kFromSave ? checkpoints.save : FolderOfUser(resume);
  if (const std::string why = checkpoints.save.empty() ? "" : WhyNoFolder(checkpoints.save);
      !why.empty()) {
    refusals.Add("save", ": cannot make ", checkpoints.save, ": ", why);
  }
  // A training that goes on does not ask for them.
  if (!checkpoints.weights.empty() && resume.empty()) {
    const absl::Status opened = checkpoint::WeightFiles::Open(checkpoints.weights).status();
    if (!opened.ok()) refusals.Add("weights", ": ", opened.message());
  }
  constexpr char kNotNegative[] = "; it must be at least 0";
  if (checkpoints.save_every < 0) {
    refusals.Add("save_every", " is ", checkpoints.save_every, kNotNegative);
  }
  if (checkpoints.keep < 0) refusals.Add("keep", " is ", checkpoints.keep, kNotNegative);
  if (checkpoints.save_every > 0 && checkpoints.save.empty()) {
    refusals.Add("save_every", " is ", checkpoints.save_every, ", but --save names no folder");
  }
  if (resume == kFromSave && checkpoints.save.empty()) {
    refusals.Add("resume", " names no folder, and neither does --save");
  }
  // With --resume alone they are those of the first start.
  if (!checkpoints.weights.empty() && !checkpoints.resume.empty() && resume != kFromSave) {
    refusals.Add("weights", " are of a new training, --resume names one that goes on");
  }
  if (checkpoints.fall_back && resume.empty()) refusals.Add("fall_back", " is for --resume");
  if (!checkpoints.may_differ.empty() && resume.empty()) {
    refusals.Add("may_differ", " is for --resume");
  }
  return checkpoints;
}

Digests DigestFlags(int64_t steps, Refusals& refusals) {
  Digests digests = {.file = DigestPath(),
                     .every = absl::GetFlag(FLAGS_digest_every),
                     .verify_every = absl::GetFlag(FLAGS_verify_replicas).value_or(0),
                     .dump = FolderOfUser(absl::GetFlag(FLAGS_digest_dump)),
                     .dump_step = absl::GetFlag(FLAGS_digest_dump_step)};
  if (digests.every < 1) {
    refusals.Add("digest_every", " is ", digests.every, "; it must be at least 1");
    digests.every = 1;
  }
  if (digests.verify_every < 0) {
    refusals.Add("verify_replicas", " is ", digests.verify_every, "; it must be at least 0");
  }
  if (digests.dump.empty() != (digests.dump_step == 0)) {
    refusals.Add("digest_dump", " and --digest_dump_step go together");
  } else if (digests.dump_step < 0 || digests.dump_step > steps) {
    refusals.Add("digest_dump_step", " is ", digests.dump_step, "; it must be 1 to --steps, ",
                 steps);
  }
  std::error_code error;
  if (!digests.dump.empty() && std::filesystem::exists(digests.dump, error) &&
      !std::filesystem::is_empty(digests.dump, error)) {
    refusals.Add("digest_dump", ": ", digests.dump, " is there, and no empty folder");
  }
  return digests;
}

void SetByFlags(bool is_known, TrainConfig& config, Refusals& refusals) {
  config.verify_replicas = absl::GetFlag(FLAGS_verify_replicas).value_or(config.verify_replicas);
  profile::Options& profiler = config.profiler;
  const std::string output = device::FromUsersFolder(absl::GetFlag(FLAGS_profile));
  if (!output.empty()) profiler.output_file = output;
  const std::optional<int64_t> step = absl::GetFlag(FLAGS_profile_step);
  if (step.has_value() && *step < 1) {
    refusals.Add("profile_step", " is ", *step, "; it must be at least 1");
  }
  profiler.profile_step = step.value_or(profiler.profile_step);
  profiler.enabled = profiler.enabled || !output.empty() || step.has_value();
  const std::optional<double> peak = absl::GetFlag(FLAGS_peak_tflops);
  constexpr double kMost = 1e9;
  if (peak.has_value() && !(*peak > 0 && *peak <= kMost)) {
    refusals.Add("peak_tflops", " is ", *peak, "; it must be more than 0, up to 1e9");
  }
  profiler.peak_flops_per_second = 1e12 * peak.value_or(0);
  profiler.ceilings_file = device::FromUsersFolder(absl::GetFlag(FLAGS_ceilings));
  const char* const only = peak.has_value()                  ? "peak_tflops"
                           : !profiler.ceilings_file.empty() ? "ceilings"
                                                             : nullptr;
  if (only != nullptr && !profiler.enabled && is_known) {
    refusals.Add(only, " is for a profile: give --profile or --profile_step");
  }
}

void CheckFiles(const WatchOptions& watch, const TrainConfig& config, Refusals& refusals) {
  const profile::Options& profiler = config.profiler;
  using File = std::pair<const char*, std::string>;
  std::vector<File> others = {{"metrics", watch.metrics}, {"trace", watch.trace}};
  for (const File& file : {File{"digest", DigestPath()},
                           {"ceilings", profiler.ceilings_file},
                           {"profile", profiler.output_file}}) {
    for (const auto& [flag, path] : others) {
      if (!device::SameFile(file.second, path)) continue;
      refusals.Add(file.first, " and --", flag, " name the same file, ", file.second);
    }
    others.push_back(file);
  }
}

}  // namespace brigade::train
