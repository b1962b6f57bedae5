#include "brigade/launch/agent.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/device/files.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/launch/processes.h"
#include "nlohmann/json.hpp"

namespace brigade::launch {
namespace {

using ::brigade::device::SteadyTime;

namespace fs = std::filesystem;

// A line is passed on in pieces of so many bytes.
constexpr size_t kMostLine = size_t{64} << 10;
// Ranks wait while the launcher has so much to read.
constexpr size_t kMostUnsent = size_t{4} << 20;
// Of the reason for the end of a rank.
constexpr size_t kMostReason = 1500;

// An address that other hosts may know; of several the first one, and rather one of IPv4.
std::string AddressOfHost() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "127.0.0.1";
  std::string of_4, of_6;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0 ||
        (each->ifa_flags & IFF_LOOPBACK) != 0) {
      continue;
    }
    char text[INET6_ADDRSTRLEN] = {};
    if (each->ifa_addr->sa_family == AF_INET && of_4.empty()) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr, text,
                sizeof(text));
      of_4 = text;
    } else if (each->ifa_addr->sa_family == AF_INET6 && of_6.empty()) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&address)) continue;
      inet_ntop(AF_INET6, &address, text, sizeof(text));
      of_6 = text;
    }
  }
  freeifaddrs(all);
  if (!of_4.empty()) return of_4;
  return of_6.empty() ? "127.0.0.1" : of_6;
}

int FreePort() {
  const int socket_of_port = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  const bool found = bind(socket_of_port, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(socket_of_port, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (socket_of_port >= 0) close(socket_of_port);
  return found ? ntohs(address.sin_port) : 0;
}

// The cores that this process may run on, in equal runs for so many ranks.
std::vector<int> CoresOf(int local_rank, size_t ranks) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {};
  std::vector<int> all;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) all.push_back(core);
  }
  const size_t r = static_cast<size_t>(local_rank);
  // More ranks than cores: each core has several.
  if (all.size() < ranks) return {all[r % all.size()]};
  return {all.begin() + static_cast<std::ptrdiff_t>(all.size() * r / ranks),
          all.begin() + static_cast<std::ptrdiff_t>(all.size() * (r + 1) / ranks)};
}

// The words of an error that a program has left, as torchrun's errors.record and WriteErrorFile
// (collectives/bootstrap/error_file.h) do; "" if it has not.
std::string ReasonInFile(const std::string& path) {
  const auto text = device::ReadFile(path, int64_t{1} << 20);
  if (!text.ok()) return "";
  const nlohmann::json content = nlohmann::json::parse(*text, nullptr, false);
  if (!content.is_object() || !content.contains("message")) return "";
  const nlohmann::json& message = content["message"];
  if (message.is_string()) return message.get<std::string>();
  if (!message.is_object() || !message.contains("message")) return "";
  const nlohmann::json& words = message["message"];
  return words.is_string() ? words.get<std::string>() : words.dump();
}

// The last line of a file behind its first `from` bytes that is none of blanks.
std::string LastLine(const std::string& path, std::streamoff from) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  file.seekg(std::max(from, size - static_cast<std::streamoff>(kMostReason)));
  std::stringstream text;
  text << file.rdbuf();
  const std::string end = text.str();
  const absl::string_view lines = absl::StripAsciiWhitespace(end);
  return std::string(lines.substr(lines.rfind('\n') + 1));
}

// Waits until no other process has the name, and has it from then on, with its children but not
// with what they start, until they have ended: an abstract socket, of which no file is left. False
// if meanwhile the launcher has gone, which closes what this process reads.
bool HoldName(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = absl::StrCat("brigade_launch.", getuid(), ".", name);
  // Behind a zero.
  const size_t size = std::min(path.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, path.data(), size);
  const int held = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  while (held >= 0 && bind(held, reinterpret_cast<sockaddr*>(&address), length) != 0 &&
         errno == EADDRINUSE) {
    // Of a pipe its end is always told, of a socket where it is asked for.
    pollfd launcher = {0, POLLRDHUP, 0};
    constexpr int kBetweenTries = 20;
    if (poll(&launcher, 1, kBetweenTries) > 0) return false;
  }
  return true;
}

class Agent {
 public:
  // `folder` is for files of ranks' errors; `descriptors`: how many a rank may have.
  Agent(std::string folder, absl::Duration patience, rlim_t descriptors)
      : folder_(std::move(folder)), patience_(patience), descriptors_(descriptors) {}

  int Run() {
    channel_.Send({"hello", AddressOfHost(), absl::StrCat(FreePort())});
    // What a launcher that says nothing has not taken is left: the next agent waits for this one.
    while (!ends_ || is_running_ || (channel_.unsent() > 0 && !is_alone())) Turn();
    return ended_by_ == 0 ? 0 : 128 + ended_by_;
  }

 private:
  struct Running {
    Rank rank;
    pid_t process = -1;
    // 1 and 2.
    int pipes[2] = {-1, -1};
    // Of each the begin of a line, and the last one before.
    std::string begun[2], last_line[2];
    std::string error_file, log;
    // What was in the log before.
    std::streamoff logged = 0;
    // What waitpid said.
    std::optional<int> ended;
    bool asked = false;
  };

  void Turn() {
    std::vector<pollfd> polled = {
        {signals_, POLLIN, 0}, {channel_.input(), POLLIN, 0}, {channel_.output(), POLLOUT, 0}};
    const bool listens = channel_.unsent() < kMostUnsent;
    for (const Running& each : ranks_) {
      for (const int pipe : each.pipes) polled.push_back({listens ? pipe : -1, POLLIN, 0});
    }
    poll(polled.data(), polled.size(), static_cast<int>(absl::ToInt64Milliseconds(Wait())));
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (size_t k = 0; k < 2; ++k) {
        if (polled[3 + 2 * r + k].revents != 0) Listen(ranks_[r], k);
      }
    }
    if (polled[0].revents != 0) TakeSignals();
    if (polled[1].revents != 0) TakeMessages();
    channel_.Flush();
    Reap();
    const SteadyTime now = SteadyTime::Now();
    if (now >= kill_at_) {
      SignalDescendants(SIGKILL);
      kill_at_ = SteadyTime::InfiniteFuture();
    }
    if (patience_ == absl::ZeroDuration()) return;
    if (now >= beat_at_) {
      channel_.Send({"alive"});
      beat_at_ = now + Heartbeat(patience_);
    }
    if (is_alone()) End(SIGTERM);
  }

  // The launcher has said nothing for too long.
  bool is_alone() const {
    return patience_ > absl::ZeroDuration() && SteadyTime::Now() - heard_at_ > patience_;
  }

  // How long nothing has to be done.
  absl::Duration Wait() const {
    SteadyTime until = std::min(kill_at_, SteadyTime::Now() + absl::Minutes(1));
    if (patience_ > absl::ZeroDuration()) until = std::min(until, beat_at_);
    return std::max(absl::ZeroDuration(), until - SteadyTime::Now()) + absl::Milliseconds(1);
  }

  void TakeSignals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      channel_.Send({"signalled", absl::StrCat(number)});
      if (ended_by_ == 0) ended_by_ = number;
      End(number);
    }
  }

  void TakeMessages() {
    const absl::StatusOr<bool> more = channel_.Read();
    heard_at_ = SteadyTime::Now();
    while (true) {
      const auto message = channel_.Next();
      if (!message.ok()) {
        Refuse(message.status());
        return;
      }
      if (!message->has_value()) break;
      Obey(**message);
    }
    if (!more.ok() || !*more) End(SIGTERM);
  }

  // What the launcher says cannot be read: nothing that follows can.
  void Refuse(const absl::Status& why) {
    if (!ends_) {
      std::fprintf(stderr, "brigade_launch: %s; is the launcher of another version?\n",
                   std::string(why.message()).c_str());
    }
    End(SIGTERM);
  }

  void Obey(const Message& message) {
    if (message[0] == "start") {
      const absl::StatusOr<StartOrder> order = StartOrderFrom(message);
      if (order.ok() && !is_running_ && !ends_) {
        Begin(*order);
      } else if (!order.ok()) {
        Refuse(order.status());
      }
    } else if (message[0] == "stop") {
      const absl::StatusOr<int> number = NumberIn(message, 1);
      Stop(number.ok() ? *number : SIGTERM);
    } else if (message[0] == "kill") {
      Stop(SIGKILL);
    }
  }

  void Begin(const StartOrder& order) {
    is_running_ = true;
    grace_ = order.grace;
    bool all_run = true;
    for (const Rank& rank : order.ranks) {
      Running running;
      running.rank = rank;
      running.error_file = absl::StrCat(folder_, "/", rank.rank);
      std::error_code ignored;
      fs::remove(running.error_file, ignored);
      Command command = {.words = order.program,
                         .variables = order.variables,
                         .directory = order.directory,
                         .descriptors = descriptors_,
                         .signal_with_parent = SIGKILL};
      for (const auto& [name, value] : rank.variables) command.variables[name] = value;
      command.variables["TORCHELASTIC_ERROR_FILE"] = running.error_file;
      if (!order.log_directory.empty()) {
        fs::create_directories(order.log_directory, ignored);
        command.log = absl::StrCat(order.log_directory, "/rank_", rank.rank, ".log");
        running.log = command.log;
        running.logged = std::max<std::streamoff>(
            0, std::ifstream(command.log, std::ios::binary | std::ios::ate).tellg());
      }
      if (order.bind_cores) command.cores = CoresOf(rank.local_rank, order.ranks.size());
      const bool has_threads = command.variables.count("OMP_NUM_THREADS") > 0 ||
                               std::getenv("OMP_NUM_THREADS") != nullptr;
      if (!has_threads && order.ranks.size() > 1) {
        command.variables["OMP_NUM_THREADS"] =
            absl::StrCat(std::max<size_t>(1, command.cores.size()));
      }
      const absl::StatusOr<Process> process = Start(command);
      if (!process.ok()) {
        // As a shell has it.
        const int code = absl::IsNotFound(process.status()) ? 127 : 126;
        SendEnd(rank.rank, 0, code, 0, !all_run, std::string(process.status().message()));
        all_run = false;
        continue;
      }
      running.process = process->id;
      running.pipes[0] = process->output, running.pipes[1] = process->errors;
      for (const int pipe : running.pipes) {
        if (pipe >= 0) fcntl(pipe, F_SETFL, fcntl(pipe, F_GETFL) | O_NONBLOCK);
      }
      ranks_.push_back(std::move(running));
    }
    if (!all_run) Stop(SIGTERM);
    EndStart();
  }

  // Passes on what a pipe has, in whole lines; a terminal's lines may end with "\r". False if it
  // has nothing now.
  bool Listen(Running& running, size_t k) {
    char bytes[1 << 16];
    const ssize_t got = read(running.pipes[k], bytes, sizeof(bytes));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    std::string& begun = running.begun[k];
    if (got > 0) begun.append(bytes, static_cast<size_t>(got));
    const size_t end = begun.find_last_of("\n\r");
    size_t whole = end == std::string::npos ? 0 : end + 1;
    if (got <= 0 || begun.size() - whole > kMostLine) whole = begun.size();
    if (whole > 0) {
      const std::string lines = begun.substr(0, whole);
      absl::string_view last = absl::StripAsciiWhitespace(lines);
      last = last.substr(last.find_last_of("\n\r") + 1);
      if (!last.empty()) running.last_line[k] = std::string(last);
      channel_.Send({"output", absl::StrCat(running.rank.rank), absl::StrCat(k + 1), lines});
      begun.erase(0, whole);
    }
    if (got > 0) return true;
    close(running.pipes[k]);
    running.pipes[k] = -1;
    return false;
  }

  // Why a rank has ended, as far as it has said so: in its file, its errors, or its output.
  static std::string ReasonOf(const Running& running) {
    const std::string in_file = ReasonInFile(running.error_file);
    if (!in_file.empty()) return in_file;
    if (!running.log.empty()) return LastLine(running.log, running.logged);
    return running.last_line[1].empty() ? running.last_line[0] : running.last_line[1];
  }

  // Children that have ended, ranks among them.
  void Reap() {
    std::vector<Running*> ended;
    int status = 0;
    for (pid_t id; (id = waitpid(-1, &status, WNOHANG)) > 0;) {
      for (Running& each : ranks_) {
        if (each.process != id) continue;
        each.ended = status;
        ended.push_back(&each);
      }
    }
    if (ended.empty()) return;
    for (Running* const each : ended) {
      // What it has said before.
      for (size_t k = 0; k < 2; ++k) {
        if (each->pipes[k] >= 0) Listen(*each, k);
      }
      SendEnd(each->rank.rank, each->process, ExitCode(*each->ended),
              WIFSIGNALED(*each->ended) ? WTERMSIG(*each->ended) : 0, each->asked,
              device::Printable(ReasonOf(*each), kMostReason));
    }
    EndStart();
  }

  void SendEnd(int rank, pid_t process, int code, int signal, bool asked,
               const std::string& reason) {
    channel_.Send({"ended", absl::StrCat(rank), absl::StrCat(process), absl::StrCat(code),
                   absl::StrCat(signal), asked ? "1" : "0", reason});
  }

  // When all ranks have ended.
  void EndStart() {
    const bool all_ended = std::all_of(ranks_.begin(), ranks_.end(),
                                       [](const Running& each) { return each.ended.has_value(); });
    if (!is_running_ || !all_ended) return;
    EndDescendants();
    for (Running& each : ranks_) {
      for (size_t k = 0; k < 2; ++k) {
        // What their children have said; who writes now is none of them.
        while (each.pipes[k] >= 0 && Listen(each, k)) {
        }
        if (each.pipes[k] >= 0) close(each.pipes[k]);
      }
    }
    ranks_.clear();
    is_running_ = false;
    kill_at_ = SteadyTime::InfiniteFuture();
    channel_.Send({"stopped", absl::StrCat(FreePort())});
  }

  void Stop(int signal) {
    if (!is_running_) return;
    for (Running& each : ranks_) each.asked = true;
    SignalDescendants(signal);
    kill_at_ =
        std::min(kill_at_, SteadyTime::Now() + (signal == SIGKILL ? absl::ZeroDuration() : grace_));
  }

  void End(int signal) {
    if (ends_) return;
    ends_ = true;
    Stop(signal);
  }

  const std::string folder_;
  const absl::Duration patience_;
  const rlim_t descriptors_;
  Channel channel_{0, 1};
  const int signals_ = OpenSignals();
  std::vector<Running> ranks_;
  bool is_running_ = false, ends_ = false;
  int ended_by_ = 0;
  absl::Duration grace_ = absl::ZeroDuration();
  SteadyTime kill_at_ = SteadyTime::InfiniteFuture(), beat_at_ = SteadyTime::InfinitePast();
  SteadyTime heard_at_ = SteadyTime::Now();
};

std::string Packed(const Variables& variables) {
  // One field that is always there.
  Message fields = {"variables"};
  for (const auto& [name, value] : variables) {
    fields.push_back(name);
    fields.push_back(value);
  }
  return collectives::PackFields(fields);
}

absl::StatusOr<Variables> UnpackVariables(const std::string& packed) {
  BRIGADE_ASSIGN_OR_RETURN(const Message fields, collectives::UnpackFields(packed));
  if (fields.size() % 2 != 1) return absl::InvalidArgumentError("a variable without a value");
  Variables variables;
  for (size_t i = 1; i < fields.size(); i += 2) variables[fields[i]] = fields[i + 1];
  return variables;
}

}  // namespace

Message ToMessage(const StartOrder& order) {
  Message message = {"start",
                     collectives::PackFields(order.program),
                     order.directory,
                     order.log_directory,
                     absl::StrCat(order.bind_cores ? 1 : 0),
                     absl::StrCat(absl::ToInt64Milliseconds(order.grace)),
                     Packed(order.variables)};
  for (const Rank& rank : order.ranks) {
    message.push_back(absl::StrCat(rank.rank));
    message.push_back(absl::StrCat(rank.local_rank));
    message.push_back(Packed(rank.variables));
  }
  return message;
}

absl::StatusOr<StartOrder> StartOrderFrom(const Message& message) {
  constexpr size_t kFixed = 7, kOfRank = 3;
  if (message.size() < kFixed || (message.size() - kFixed) % kOfRank != 0) {
    return absl::InvalidArgumentError("not an order to start");
  }
  StartOrder order;
  BRIGADE_ASSIGN_OR_RETURN(order.program, collectives::UnpackFields(message[1]));
  order.directory = message[2], order.log_directory = message[3];
  BRIGADE_ASSIGN_OR_RETURN(const int binds, NumberIn(message, 4));
  BRIGADE_ASSIGN_OR_RETURN(const int grace, NumberIn(message, 5));
  order.bind_cores = binds != 0;
  order.grace = absl::Milliseconds(grace);
  BRIGADE_ASSIGN_OR_RETURN(order.variables, UnpackVariables(message[6]));
  for (size_t i = kFixed; i < message.size(); i += kOfRank) {
    Rank rank;
    BRIGADE_ASSIGN_OR_RETURN(rank.rank, NumberIn(message, i));
    BRIGADE_ASSIGN_OR_RETURN(rank.local_rank, NumberIn(message, i + 1));
    BRIGADE_ASSIGN_OR_RETURN(rank.variables, UnpackVariables(message[i + 2]));
    order.ranks.push_back(std::move(rank));
  }
  return order;
}

absl::Duration Heartbeat(absl::Duration patience) {
  return std::min(absl::Seconds(1), patience / 4);
}

int RunAgent(const std::string& name, absl::Duration patience) {
  if (!name.empty() && !HoldName(name)) return 0;
  AdoptOrphans();
  const rlim_t descriptors = RaiseDescriptorLimit();
  std::string folder = absl::StrCat(TemporaryFolder(), "/brigade_launch.XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror(folder.c_str());
    return 1;
  }
  const int signals = OpenSignals();
  const pid_t agent = fork();
  if (agent < 0) {
    std::perror("fork");
    return 1;
  }
  if (agent == 0) {
    close(signals);
    AdoptOrphans();
    const int code = Agent(folder, patience, descriptors).Run();
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    _exit(code);
  }
  // The launcher sees the end of messages when the agent ends.
  close(0);
  close(1);
  int status = 0;
  while (waitpid(agent, &status, WNOHANG) != agent) {
    pollfd polled = {signals, POLLIN, 0};
    poll(&polled, 1, -1);
    signalfd_siginfo info;
    while (read(signals, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) kill(agent, static_cast<int>(info.ssi_signo));
    }
  }
  EndDescendants();
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return ExitCode(status);
}

}  // namespace brigade::launch
