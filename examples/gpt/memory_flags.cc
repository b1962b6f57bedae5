#include "brigade/examples/gpt/memory_flags.h"

#include <filesystem>
#include <system_error>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/byte_count.h"
#include "brigade/device/command_line.h"
#include "brigade/zero/options.h"

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
ABSL_FLAG(
    std::string, stash, "",
    "where the inputs that --recompute=block and segments:K keep are between the passes: none "
    "(on the device), host, or file (in --offload_dir). Before the config's; default none");

namespace brigade::gpt {
namespace {

std::optional<int64_t> BytesOf(absl::string_view flag, const std::string& text,
                               train::Refusals& refusals) {
  if (text.empty()) return std::nullopt;
  const std::optional<int64_t> bytes = device::ParseByteCount(text);
  if (!bytes.has_value()) {
    refusals.Add(flag, " is \"", text, "\"; it must be a number of bytes");
  }
  return bytes;
}

void CheckOffload(const MemoryFlags& flags, train::Refusals& refusals) {
  const std::string where = absl::GetFlag(FLAGS_offload_to);
  if (!flags.offloads() && !flags.offload.empty() && flags.offload != "none") {
    refusals.Add("offload", " is \"", flags.offload, "\"; it must be none, optimizer or all");
  } else if (!where.empty() && where != "host" && where != "file") {
    refusals.Add("offload_to", " is \"", where, "\"; it must be host or file");
  } else if (!where.empty() && !flags.offloads()) {
    refusals.Add("offload_to", " is for --offload=optimizer and --offload=all");
  } else if (where == "file" && flags.directory.empty()) {
    refusals.Add("offload_to", "=file needs --offload_dir");
  }
  if (!flags.directory.empty() && where != "file" && absl::GetFlag(FLAGS_stash) != "file") {
    refusals.Add("offload_dir", " is for --offload_to=file and --stash=file");
  }
}

void SetOffload(const MemoryFlags& flags, zero::ZeroOptions& options, train::Refusals& refusals) {
  zero::OffloadOptions& offload = options.offload;
  if (!flags.directory.empty()) offload.file.directory = flags.directory;
  if (flags.offload.empty() && !flags.delays_update) return;
  if (!flags.offload.empty()) {
    offload.optimizer_state = offload.parameters = device::Tier::kDevice;
    offload.host_share = 1;
    offload.delay_update = false;
  }
  if (flags.offloads()) offload.optimizer_state = flags.tier;
  if (flags.offload == "all") offload.parameters = flags.tier;
  if (flags.delays_update) offload.delay_update = true;
  const absl::Status valid = zero::Validate(options);
  if (valid.ok()) return;
  if (flags.offload.empty()) return refusals.Add("delay_update", ": ", valid.message());
  refusals.Add("offload", "=", flags.offload, flags.delays_update ? " --delay_update" : "", ": ",
               valid.message());
}

// After SetOffload, which has the directory of files.
void SetActivations(const MemoryFlags& flags, train::TrainConfig& config,
                    train::Refusals& refusals) {
  recompute::Policy& policy = config.recompute;
  if (flags.recompute.has_value()) {
    const recompute::StashTier stash = policy.stash;
    policy = *flags.recompute;
    policy.stash = stash;
  }
  policy.stash = flags.stash.value_or(policy.stash);
  config.recompute_times = flags.recompute_times.value_or(config.recompute_times);
  if (flags.recompute_times.has_value() && policy.kind == recompute::Policy::Kind::kNone) {
    refusals.Add("recompute_times", " is ", absl::GetFlag(FLAGS_recompute_times),
                 ", but no activations are made again");
  }
  if (flags.stash == recompute::StashTier::kFile && config.zero.offload.file.directory.empty()) {
    refusals.Add("stash", "=file needs --offload_dir");
  }
  if (const absl::Status valid = recompute::Validate(policy); !valid.ok()) {
    refusals.Add(flags.stash.has_value() ? "stash" : "recompute", ": ", valid.message());
  }
}

// A rank makes its file there when its part of the model is made, long after the first lines.
absl::Status CheckDirectory(const train::TrainConfig& config) {
  const std::string& directory = config.zero.offload.file.directory;
  const bool has_file =
      config.zero.offload.file_state() || config.recompute.stash == recompute::StashTier::kFile;
  std::error_code error;
  if (!has_file || directory.empty() || std::filesystem::is_directory(directory, error)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("files are to be in ", directory,
                   ", which is no folder (--offload_dir, offload_optimizer.nvme_path, "
                   "brigade.file_directory)"));
}

}  // namespace

MemoryFlags MemoryOfFlags(train::Refusals& refusals) {
  MemoryFlags flags = {
      .offload = absl::GetFlag(FLAGS_offload),
      .tier = absl::GetFlag(FLAGS_offload_to) == "file" ? device::Tier::kFile : device::Tier::kHost,
      .directory = device::FromUsersFolder(absl::GetFlag(FLAGS_offload_dir)),
      .delays_update = absl::GetFlag(FLAGS_delay_update)};
  CheckOffload(flags, refusals);
  flags.recompute =
      train::OfFlag("recompute", absl::GetFlag(FLAGS_recompute), recompute::ParsePolicy, refusals);
  flags.recompute_times = train::OfFlag("recompute_times", absl::GetFlag(FLAGS_recompute_times),
                                        train::ParseRecomputeTimes, refusals);
  flags.stash =
      train::OfFlag("stash", absl::GetFlag(FLAGS_stash), recompute::ParseStashTier, refusals);
  flags.limit_bytes = BytesOf("device_limit", absl::GetFlag(FLAGS_device_limit), refusals);
  flags.link = BytesOf("device_link", absl::GetFlag(FLAGS_device_link), refusals);
  return flags;
}

void SetMemory(const MemoryFlags& flags, Job& job, train::Refusals& refusals) {
  job.device_limit_bytes = flags.limit_bytes.value_or(job.device_limit_bytes);
  job.device_link = flags.link.value_or(job.device_link);
  SetOffload(flags, job.config.zero, refusals);
  SetActivations(flags, job.config, refusals);
  refusals.Check(CheckDirectory(job.config));
}

}  // namespace brigade::gpt
