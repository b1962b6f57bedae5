// brigade_launch: starts a program once for each rank (docs/launching.md).

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/device/counted.h"
#include "brigade/device/files.h"
#include "brigade/device/status_macros.h"
#include "brigade/launch/agent.h"
#include "brigade/launch/back_end.h"
#include "brigade/launch/command_line.h"
#include "brigade/launch/hosts.h"
#include "brigade/launch/job.h"
#include "brigade/launch/processes.h"

namespace brigade::launch {
namespace {

namespace fs = std::filesystem;

// The GPUs of this host that programs may see, if somebody has chosen them.
std::optional<std::vector<std::string>> ChosenGpus() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return std::nullopt;
  return absl::StrSplit(visible, ',', absl::SkipWhitespace());
}

// GPUs of this host: those that programs may see, or what the driver has made files for.
int CountGpus() {
  if (const auto chosen = ChosenGpus(); chosen.has_value()) {
    return static_cast<int>(chosen->size());
  }
  int count = 0;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename().string();
    const absl::string_view prefix = "nvidia";
    const bool is_gpu = absl::StartsWith(name, prefix) && name.size() > prefix.size() &&
                        std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()),
                                    name.end(), [](unsigned char c) { return std::isdigit(c); });
    if (is_gpu) ++count;
  }
  return count;
}

// What ranks see of GPUs. Those that were chosen before stay, if no hostfile says otherwise; a slot
// is then a place among them, and a filter leaves of them what it leaves of the slots.
void SetDevices(bool has_hosts, JobOptions& job) {
  const auto chosen = ChosenGpus();
  job.sets_devices = has_hosts || !chosen.has_value();
  const bool has_filter = !job.options.include.empty() || !job.options.exclude.empty();
  if (job.sets_devices || !has_filter) return;
  for (const Host& host : job.hosts) {
    // Ranks without a GPU each.
    if (static_cast<size_t>(host.slots.back()) >= chosen->size()) return;
  }
  job.sets_devices = true;
  job.devices = *chosen;
}

// A file that says which process the launcher is, while it runs.
class PidFile {
 public:
  absl::Status Write() {
    path_ = absl::StrCat(TemporaryFolder(), "/", getpid(), ".ds");
    BRIGADE_ASSIGN_OR_RETURN(auto file, device::FileReplacement::Begin(path_));
    file.Write(absl::StrCat(getpid()));
    return file.Commit();
  }
  ~PidFile() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove(path_, ignored);
  }

 private:
  std::string path_;
};

// Of pdsh's ssh, as AgentCommand has it. What is appended pdsh puts before its own and the user's
// PDSH_SSH_ARGS, and ssh takes what comes first.
void AskNoPassword() {
  const auto text_of = [](const char* name) -> std::string {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
  };
  const std::string appended = text_of("PDSH_SSH_ARGS_APPEND");
  for (const std::string& given : {appended, text_of("PDSH_SSH_ARGS")}) {
    if (absl::StrContains(absl::AsciiStrToLower(given), "batchmode")) return;
  }
  setenv(
      "PDSH_SSH_ARGS_APPEND",
      absl::StrCat(appended, appended.empty() ? "" : " ", kNoPassword[0], kNoPassword[1]).c_str(),
      /*replace=*/1);
}

// Takes this process's place.
absl::Status Become(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  return absl::ErrnoToStatus(errno, absl::StrCat("program ", words[0]));
}

absl::StatusOr<int> Run(const std::vector<std::string>& words) {
  JobOptions job;
  BRIGADE_ASSIGN_OR_RETURN(job.options, ParseCommandLine(words));
  Options& options = job.options;
  if (options.help) {
    std::fputs(HelpText().c_str(), stdout);
    return 0;
  }
  if (options.agent.has_value()) return RunAgent(*options.agent, options.agent_patience);
  BRIGADE_ASSIGN_OR_RETURN(job.hosts, HostsOf(options, CountGpus()));
  const bool has_hosts = !options.hostfile.empty() || !options.hosts.empty();
  const bool is_here = job.hosts.size() == 1 && job.hosts[0].name == "localhost";
  if (has_hosts && !options.launcher.has_value()) {
    options.launcher = options.no_ssh || is_here ? BackEnd::kLocal : BackEnd::kSsh;
  }
  if (options.launcher == BackEnd::kLocal && !options.no_ssh && job.hosts.size() > 1) {
    return absl::InvalidArgumentError("--launcher=local is for one host");
  }
  const int node_rank = options.node_rank.value_or(0);
  if (options.no_ssh && (job.hosts.size() > 1 || node_rank > 0)) {
    job.only = node_rank;
    if (*job.only >= static_cast<int>(job.hosts.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("--node_rank is ", *job.only, ", and the job has ",
                       device::Counted(static_cast<int64_t>(job.hosts.size()), "host")));
    }
  }
  const bool is_remote = options.launcher.has_value() && *options.launcher != BackEnd::kLocal;
  if (is_remote) {
    BRIGADE_ASSIGN_OR_RETURN(job.exported, ExportedVariables());
    if (*options.launcher != BackEnd::kSsh) {
      if (*options.launcher == BackEnd::kPdsh) {
        // Else it may ask by rsh. Of a user who has said how the word stays.
        setenv("PDSH_RCMD_TYPE", "ssh", /*replace=*/0);
        AskNoPassword();
      } else {
        for (const auto& [name, value] : ForeignVariables(options, job.hosts)) {
          job.exported[name] = value;
        }
        for (const auto& [name, value] : job.exported) setenv(name.c_str(), value.c_str(), 1);
        for (const char* const secret : kSecretVariables) {
          if (std::getenv(secret) != nullptr) job.exported[secret] = "";
        }
      }
      BRIGADE_ASSIGN_OR_RETURN(const std::vector<std::string> command,
                               ForeignCommand(options, job.hosts, job.exported));
      return Become(command);
    }
  }
  SetDevices(has_hosts, job);
  BRIGADE_ASSIGN_OR_RETURN(job.secret, collectives::JobSecret::FromEnvironment(
                                           [](const char* name) { return std::getenv(name); }));
  if (!job.secret.has_value() && !job.only.has_value()) {
    job.secret = collectives::JobSecret::Random();
  }
  // Ranks get what is made of it, and no other process a copy.
  for (const char* const secret : kSecretVariables) unsetenv(secret);
  const char* const run_id = std::getenv("TORCHELASTIC_RUN_ID");
  // Launchers on several hosts cannot agree on one.
  job.run_id = run_id != nullptr      ? run_id
               : job.only.has_value() ? "none"
                                      : absl::BytesToHexString(collectives::Nonce().substr(0, 8));
  PidFile pid_file;
  if (options.save_pid) BRIGADE_RETURN_IF_ERROR(pid_file.Write());
  return RunJob(job);
}

}  // namespace
}  // namespace brigade::launch

int main(int argc, char** argv) {
  // What is opened later must not become one of the three.
  while (true) {
    const int end = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (end > 2) {
      close(end);
      break;
    }
    if (end < 0) return 1;
  }
  signal(SIGPIPE, SIG_IGN);
  // Children are waited for, also where who has started this process does not do so.
  signal(SIGCHLD, SIG_DFL);
  // The ranks would go on.
  signal(SIGTSTP, SIG_IGN);
  const std::vector<std::string> words(argv + 1, argv + argc);
  // `bazel run` moves the process.
  if (const char* const folder = std::getenv("BUILD_WORKING_DIRECTORY"); folder != nullptr) {
    if (chdir(folder) != 0) std::perror(folder);
    unsetenv("BUILD_WORKING_DIRECTORY");
  }
  const absl::StatusOr<int> code = brigade::launch::Run(words);
  if (code.ok()) return *code;
  std::fprintf(stderr, "brigade_launch: %s\n", std::string(code.status().message()).c_str());
  return 2;
}
