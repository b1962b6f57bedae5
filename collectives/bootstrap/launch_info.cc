#include "brigade/collectives/bootstrap/launch_info.h"

#include <cstdlib>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/printable.h"

namespace brigade::collectives {
namespace {

using ::brigade::device::Printable;

struct Launcher {
  const char* rank;
  const char* size;
  const char* local_rank;
  // Of the job's name: whose, which one, and a number behind it or null.
  const char* name;
  const char* job;
  const char* part;
};

constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "torchrun", "TORCHELASTIC_RUN_ID", nullptr},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "mpirun",
     "PMIX_NAMESPACE", nullptr},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "slurm", "SLURM_JOB_ID", "SLURM_STEP_ID"},
};
constexpr const Launcher& kTorchrun = kLaunchers[0];
constexpr const Launcher& kSlurm = kLaunchers[2];

// nullopt if the variable is not set. An empty one is set, and wrong.
absl::StatusOr<std::optional<int>> Number(const EnvironmentGetter& get, const char* name, int least,
                                          int most) {
  const char* const text = get(name);
  if (text == nullptr) return std::optional<int>();
  int value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "='", Printable(text), "' is not a whole number"));
  }
  if (value < least || value > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "=", value,
                     most == std::numeric_limits<int>::max()
                         ? absl::StrCat(" is less than ", least)
                         : absl::StrCat(" is not in ", least, " to ", most)));
  }
  return std::optional<int>(value);
}

// "gpu[07-09,12],login1" -> "gpu07"; "a[1-2]b" -> "a1b".
absl::StatusOr<std::string> FirstHost(const std::string& list) {
  const size_t open = list.find('[');
  const size_t comma = list.find(',');
  std::string host;
  if (open == std::string::npos || comma < open) {
    host = list.substr(0, comma);
  } else {
    const size_t close = list.find(']', open);
    const size_t number_end = list.find_first_of(",-]", open);
    if (close != std::string::npos && number_end > open + 1) {
      const size_t end = list.find(',', close);
      host = absl::StrCat(list.substr(0, open), list.substr(open + 1, number_end - open - 1),
                          list.substr(close + 1, end - close - 1));
    }
  }
  if (host.empty() || host.find_first_of("[] \t") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("SLURM_STEP_NODELIST='", Printable(list, 200),
                                                   "' has no first host; set MASTER_ADDR"));
  }
  return host;
}

absl::Status ReadRanks(const EnvironmentGetter& get, const Launcher& launcher,
                       LaunchInfo& launch_info) {
  constexpr int kMost = std::numeric_limits<int>::max();
  const auto rank = Number(get, launcher.rank, 0, kMost);
  if (!rank.ok()) return rank.status();
  const auto size = Number(get, launcher.size, 1, kMost);
  if (!size.ok()) return size.status();
  const auto local_rank = Number(get, launcher.local_rank, 0, kMost);
  if (!local_rank.ok()) return local_rank.status();
  if (!rank->has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(launcher.size, "=", **size, " is set, but ", launcher.rank, " is not"));
  }
  if (!size->has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(launcher.rank, "=", **rank, " is set, but ", launcher.size, " is not"));
  }
  if (**rank >= **size) {
    return absl::InvalidArgumentError(
        absl::StrCat(launcher.rank, "=", **rank, " is not less than ", launcher.size, "=", **size));
  }
  launch_info.launched = true;
  launch_info.rank = **rank;
  launch_info.size = **size;
  launch_info.local_rank = local_rank->value_or(0);
  return absl::OkStatus();
}

std::string JobName(const EnvironmentGetter& get, const Launcher& launcher) {
  const char* const job = get(launcher.job);
  // torchrun's name of a job that was given none.
  if (job == nullptr || absl::string_view(job) == "none") return "";
  const char* const part = launcher.part == nullptr ? nullptr : get(launcher.part);
  return absl::StrCat(launcher.name, " ", job, part == nullptr ? "" : ".",
                      part == nullptr ? "" : part);
}

// torchrun's agent serves a store where rank 0 would.
absl::Status ReadAgentStore(const EnvironmentGetter& get, LaunchInfo& launch_info) {
  const char* const serves = get("TORCHELASTIC_USE_AGENT_STORE");
  if (serves == nullptr || absl::string_view(serves) != "True") return absl::OkStatus();
  const char* const run = get("TORCHELASTIC_RUN_ID");
  launch_info.agent_store = {
      .host = launch_info.master_addr,
      .port = launch_info.master_port,
      .key = absl::StrCat("brigade/", run == nullptr ? "" : run, "/port of rank 0")};
  const auto local_size = Number(get, "LOCAL_WORLD_SIZE", 1, std::numeric_limits<int>::max());
  if (!local_size.ok()) return local_size.status();
  if (*local_size == launch_info.size) launch_info.master_addr = LaunchInfo().master_addr;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LaunchInfo> LaunchInfoFromEnvironment(const EnvironmentGetter& get) {
  LaunchInfo launch_info;
  const Launcher* found = nullptr;
  for (const Launcher& launcher : kLaunchers) {
    // salloc sets SLURM_NTASKS for a shell that is no task; only a rank makes a task of Slurm.
    const bool sized = &launcher != &kSlurm && get(launcher.size) != nullptr;
    if (get(launcher.rank) == nullptr && !sized) continue;
    found = &launcher;
    break;
  }
  if (found != nullptr) {
    const absl::Status read = ReadRanks(get, *found, launch_info);
    if (!read.ok()) return read;
    launch_info.job = JobName(get, *found);
  }

  const char* const master = get("MASTER_ADDR");
  const char* const nodes = get("SLURM_STEP_NODELIST");
  if (master != nullptr) {
    launch_info.master_addr = std::string(absl::StripAsciiWhitespace(master));
    if (launch_info.master_addr.empty())
      return absl::InvalidArgumentError("MASTER_ADDR='' is empty");
  } else if (found == &kSlurm && nodes != nullptr) {
    absl::StatusOr<std::string> host = FirstHost(nodes);
    if (!host.ok()) return host.status();
    launch_info.master_addr = *std::move(host);
  }
  const auto secret = JobSecret::FromEnvironment(get);
  if (!secret.ok()) return secret.status();
  launch_info.secret = *secret;
  const auto port = Number(get, "MASTER_PORT", 1, 65535);
  if (!port.ok()) return port.status();
  launch_info.master_port = port->value_or(launch_info.master_port);
  if (found == &kTorchrun) {
    const absl::Status read = ReadAgentStore(get, launch_info);
    if (!read.ok()) return read;
  }
  return launch_info;
}

absl::StatusOr<LaunchInfo> LaunchInfoFromEnvironment() {
  return LaunchInfoFromEnvironment([](const char* name) { return std::getenv(name); });
}

}  // namespace brigade::collectives
