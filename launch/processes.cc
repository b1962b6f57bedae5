#include "brigade/launch/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::launch {
namespace {

using ::brigade::device::Quoted;
using ::brigade::device::SteadyTime;

// What a child tells of its failure before it is the program.
struct Failure {
  enum Step : int { kDirectory, kLog, kCores, kProgram, kPipes } step;
  int error;
};

// Both ends of a pipe, which no program inherits.
class Pipe {
 public:
  ~Pipe() {
    Close(read_);
    Close(write_);
  }
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  absl::Status Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
    read_ = ends[0], write_ = ends[1];
    return absl::OkStatus();
  }
  int read() const { return read_; }
  int write() const { return write_; }
  int TakeRead() { return std::exchange(read_, -1); }
  int TakeWrite() { return std::exchange(write_, -1); }
  void CloseWrite() { Close(write_); }

 private:
  static void Close(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }

  int read_ = -1, write_ = -1;
};

std::vector<std::string> EnvironmentOf(const Variables& variables) {
  std::vector<std::string> all;
  for (char** each = environ; *each != nullptr; ++each) {
    const absl::string_view text = *each;
    const size_t equals = text.find('=');
    if (variables.count(std::string(text.substr(0, equals))) == 0) all.emplace_back(text);
  }
  for (const auto& [name, value] : variables) all.push_back(absl::StrCat(name, "=", value));
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& each : strings) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The child, between fork and the program. Single-threaded processes fork here, so that it may do
// anything.
[[noreturn]] void BecomeProgram(const Command& command, pid_t parent, int input, int output,
                                int errors, int failures) {
  const auto fail = [&](Failure::Step step) {
    const Failure failure = {step, errno};
    // Nothing is left to do where even this fails.
    if (write(failures, &failure, sizeof(failure)) < 0) _exit(126);
    _exit(127);
  };
  setpgid(0, 0);
  if (command.signal_with_parent != 0) {
    prctl(PR_SET_PDEATHSIG, command.signal_with_parent);
    // It may have ended before that.
    if (getppid() != parent) _exit(127);
  }
  for (int number = 1; number < NSIG; ++number) {
    // What was ignored before this program began stays so; these two it ignores itself.
    struct sigaction now = {};
    const bool is_ours = number == SIGPIPE || number == SIGTSTP;
    if (sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN && !is_ours) continue;
    signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (!command.directory.empty() && chdir(command.directory.c_str()) != 0) {
    fail(Failure::kDirectory);
  }
  if (input < 0) input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (!command.log.empty()) {
    output = errors = open(command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (output < 0) fail(Failure::kLog);
  }
  if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || (errors >= 0 && dup2(errors, 2) < 0)) {
    fail(Failure::kPipes);
  }
  if (!command.cores.empty()) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (const int core : command.cores) CPU_SET(static_cast<size_t>(core), &cores);
    if (sched_setaffinity(0, sizeof(cores), &cores) != 0) fail(Failure::kCores);
  }
  // No sooner: this process may have more of them open, until it is the program.
  rlimit descriptors = {};
  if (command.descriptors > 0 && getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = command.descriptors;
    setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  std::vector<std::string> words = command.words, environment = EnvironmentOf(command.variables);
  execvpe(words[0].c_str(), Pointers(words).data(), Pointers(environment).data());
  fail(Failure::kProgram);
  _exit(127);
}

absl::Status StatusOf(const Failure& failure, const Command& command) {
  switch (failure.step) {
    case Failure::kDirectory:
      return absl::ErrnoToStatus(failure.error, absl::StrCat("folder ", Quoted(command.directory)));
    case Failure::kLog:
      return absl::ErrnoToStatus(failure.error, absl::StrCat("log ", Quoted(command.log)));
    case Failure::kCores:
      return absl::ErrnoToStatus(failure.error, "cores of a rank");
    case Failure::kProgram:
      return absl::ErrnoToStatus(failure.error, absl::StrCat("program ", Quoted(command.words[0])));
    case Failure::kPipes:
      break;
  }
  return absl::ErrnoToStatus(failure.error, "pipes");
}

// Parents of all processes, by process.
std::map<pid_t, pid_t> Parents() {
  std::map<pid_t, pid_t> parents;
  DIR* const folder = opendir("/proc");
  if (folder == nullptr) return parents;
  while (const dirent* const entry = readdir(folder)) {
    int id = 0;
    if (!absl::SimpleAtoi(entry->d_name, &id)) continue;
    std::ifstream file(absl::StrCat("/proc/", id, "/stat"));
    std::stringstream text;
    text << file.rdbuf();
    // "7 (a name) S 1 ...": a name may have brackets and blanks.
    const std::string stat = text.str();
    const size_t end = stat.rfind(')');
    int parent = 0;
    if (end == std::string::npos || std::sscanf(stat.c_str() + end + 1, " %*c %d", &parent) != 1) {
      continue;
    }
    parents[id] = parent;
  }
  closedir(folder);
  return parents;
}

}  // namespace

absl::StatusOr<Process> Start(const Command& command) {
  Pipe input, output, errors, failures;
  if (command.has_input) BRIGADE_RETURN_IF_ERROR(input.Open());
  if (command.log.empty()) {
    BRIGADE_RETURN_IF_ERROR(output.Open());
    if (!command.keeps_errors) BRIGADE_RETURN_IF_ERROR(errors.Open());
  }
  BRIGADE_RETURN_IF_ERROR(failures.Open());
  const pid_t parent = getpid(), child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "fork");
  if (child == 0) {
    BecomeProgram(command, parent, input.read(), output.write(), errors.write(), failures.write());
  }
  // Whoever comes first: its group must be there for signals.
  setpgid(child, child);
  failures.CloseWrite();
  Failure failure;
  ssize_t got;
  do {
    got = read(failures.read(), &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  if (got == sizeof(failure)) {
    waitpid(child, nullptr, 0);
    return StatusOf(failure, command);
  }
  return Process{child, input.TakeWrite(), output.TakeRead(), errors.TakeRead()};
}

void AdoptOrphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

int SignalDescendants(int signal) {
  int reached = 0;
  const std::map<pid_t, pid_t> parents = Parents();
  const pid_t self = getpid();
  for (const auto& [id, parent] : parents) {
    pid_t above = parent;
    for (size_t step = 0; above != self && above > 1 && step < parents.size(); ++step) {
      const auto next = parents.find(above);
      above = next == parents.end() ? 0 : next->second;
    }
    if (above == self && kill(id, signal) == 0) ++reached;
  }
  return reached;
}

void EndDescendants() {
  const SteadyTime until = SteadyTime::Now() + absl::Seconds(10);
  while (SignalDescendants(SIGKILL) > 0 && SteadyTime::Now() < until) {
    pid_t reaped;
    while ((reaped = waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped < 0 && errno == ECHILD) return;
    absl::SleepFor(absl::Milliseconds(2));
  }
}

std::vector<int> EndingSignals() {
  std::vector<int> signals;
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    struct sigaction now = {};
    if (sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) {
      signals.push_back(number);
    }
  }
  return signals;
}

int OpenSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int each : EndingSignals()) sigaddset(&signals, each);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

rlim_t RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
  return before;
}

std::string TemporaryFolder() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return error ? "/tmp" : folder.string();
}

int ExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string SignalName(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

}  // namespace brigade::launch
