#include "brigade/launch/job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/launch/agent.h"
#include "brigade/launch/back_end.h"
#include "brigade/launch/channel.h"
#include "brigade/launch/processes.h"

namespace brigade::launch {
namespace {

using ::brigade::device::SteadyTime;

// How much later than the first failure a rank may be killed to be the reason for it.
constexpr absl::Duration kAtOnce = absl::Seconds(1);
// What agents have beyond the grace, and after what cannot be refused.
constexpr absl::Duration kAfterKill = absl::Seconds(5);
// Between two tries to reach a host.
constexpr absl::Duration kRetry = absl::Seconds(1);
// Agents wait while so many bytes are to be printed.
constexpr size_t kMostUnprinted = size_t{4} << 20;

// Of a line of ssh's errors.
constexpr size_t kMostError = 1500;
// ssh's own code, beside those of what it runs.
constexpr int kSshFailed = 255;

// What ssh says where another try would say the same.
bool IsRefusal(absl::string_view error) {
  return absl::StrContains(error, "Permission denied") ||
         absl::StrContains(error, "Host key verification failed") ||
         absl::StrContains(error, "Too many authentication failures");
}

// What is to be printed: a terminal or a pipe that nobody reads must not keep signals waiting.
class Printer {
 public:
  explicit Printer(int end) : end_(end) {}

  void Print(absl::string_view text) { absl::StrAppend(&text_, text); }
  size_t size() const { return text_.size(); }
  // For poll.
  int end() const { return text_.empty() ? -1 : end_; }
  // When poll says that there is room: so much of it every pipe takes at once.
  void Write() {
    const ssize_t wrote = write(end_, text_.data(), std::min<size_t>(text_.size(), PIPE_BUF));
    if (wrote > 0) text_.erase(0, static_cast<size_t>(wrote));
    if (wrote >= 0 || errno == EINTR || errno == EAGAIN) return;
    if (error_ == 0) error_ = errno;
    text_.clear();
  }
  // Of the first text that was lost, as on a full disk; 0: none was.
  int error() const { return error_; }

 private:
  const int end_;
  std::string text_;
  int error_ = 0;
};

// What has ended a start.
struct Failure {
  std::string words;
  int code = 0;
  bool by_signal = false;
};

struct Node {
  Host host;
  Process agent;
  std::unique_ptr<Channel> channel;
  // What ssh to another host says of errors, and what it has said so far of a line; and its last
  // line.
  int errors = -1;
  std::string begun_error, last_error;
  // Lines of errors that were told; again, at each try, they are not.
  std::set<std::string> told;
  // There is no use in another try: ssh has said so.
  bool refuses = false;
  // Whether the agent has said so since it was started, and whether it has ranks.
  bool greeted = false, has_ranks = false;
  std::string address;
  int port = 0;
  // Whether it has been waited for, and whether its messages are at their end: then it is lost.
  bool has_ended = false, said_all = false;
  // Of this agent, or of the one before.
  std::string why_lost;
  bool has_reason = false;
  SteadyTime heard_at = SteadyTime::InfiniteFuture();
  SteadyTime retry_at = SteadyTime::InfinitePast();

  bool is_connected() const { return agent.id >= 0; }
};

class Job {
 public:
  explicit Job(const JobOptions& job)
      : job_(job), options_(job.options), is_remote_(job.options.launcher == BackEnd::kSsh) {
    for (size_t h = 0; h < job.hosts.size(); ++h) {
      if (job.only.has_value() && static_cast<size_t>(*job.only) != h) continue;
      nodes_.push_back(std::make_unique<Node>());
      nodes_.back()->host = job.hosts[h];
    }
  }

  int Run() {
    while (true) {
      if (!Gather()) break;
      failure_.reset();
      Begin();
      while (AnyHasRanks()) Turn();
      if (ended_by_ != 0 || !failure_.has_value() || restarts_ == options_.max_restarts) break;
      ++restarts_;
      Say(absl::StrCat(failure_->words, "; restart ", restarts_, " of ", options_.max_restarts));
    }
    End();
    if (ended_by_ != 0) Say(absl::StrCat("ended by ", SignalName(ended_by_)));
    if (failure_.has_value()) Say(failure_->words);
    PrintAll();
    if (ended_by_ != 0) return 128 + ended_by_;
    return failure_.has_value() ? failure_->code : 0;
  }

 private:
  void Say(absl::string_view words) {
    errors_.Print(absl::StrCat("brigade_launch: ", words, "\n"));
  }

  // Once, where what ranks print could not be written. A reader who has closed a pipe, as head
  // does, wants no more of it.
  void TellOfLoss() {
    const int error = printed_.error();
    if (error == 0 || error == EPIPE || std::exchange(has_told_of_loss_, true)) return;
    Say(absl::ErrnoToStatus(error, "what ranks print is lost").message());
  }

  bool AnyHasRanks() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n->has_ranks; });
  }

  // Of those that are started from here (HostsOf).
  int LeastNodes() const {
    const bool has_least = options_.min_nodes > 0 && !job_.only.has_value();
    return has_least ? options_.min_nodes : static_cast<int>(nodes_.size());
  }

  // Until the agents of enough hosts are there; all of them if they come in time.
  bool Gather() {
    SteadyTime until = SteadyTime::Now() + options_.host_timeout;
    for (const auto& node : nodes_) {
      node->retry_at = SteadyTime::InfinitePast();
      node->refuses = false;
    }
    while (ended_by_ == 0) {
      const int greeted = static_cast<int>(std::count_if(
          nodes_.begin(), nodes_.end(), [](const auto& node) { return node->greeted; }));
      int waited_for = 0, refusing = 0;
      for (const auto& node : nodes_) {
        if (!node->is_connected() && node->refuses) {
          ++refusing;
          continue;
        }
        if (!node->is_connected() && SteadyTime::Now() >= node->retry_at) Connect(*node);
        // A host's first try is waited for, whatever it takes; others only if hosts are missing.
        if (!node->greeted && (node->is_connected() || greeted < LeastNodes())) ++waited_for;
      }
      if (greeted == static_cast<int>(nodes_.size())) return true;
      const bool enough = greeted >= LeastNodes();
      if (enough && waited_for == 0) return true;
      const bool never_enough = static_cast<int>(nodes_.size()) - refusing < LeastNodes();
      if (SteadyTime::Now() >= until || never_enough) {
        if (enough) return true;
        failure_ = Failure{absl::StrCat(greeted, " of ", nodes_.size(), " hosts are there, and ",
                                        LeastNodes(), " are needed", WhyLost()),
                           kNoHosts, false};
        return false;
      }
      const SteadyTime before = SteadyTime::Now();
      const bool listened = listens();
      Turn();
      // While what they say is not read no host can be late.
      if (!listened) until = until + (SteadyTime::Now() - before);
    }
    return false;
  }

  // Of the first host that is missing, or rather of one that never comes.
  std::string WhyLost() const {
    const Node* missing = nullptr;
    for (const auto& node : nodes_) {
      if (node->greeted || node->why_lost.empty()) continue;
      if (missing == nullptr || (node->refuses && !missing->refuses)) missing = node.get();
    }
    return missing == nullptr ? "" : absl::StrCat("; ", missing->why_lost);
  }

  void Connect(Node& node) {
    node.retry_at = SteadyTime::Now() + kRetry;
    node.greeted = node.said_all = node.has_ended = node.has_reason = false;
    const auto agent = Start(
        {.words = AgentCommand(options_, node.host.name, absl::StrCat(id_, ".", node.host.name)),
         .has_input = true,
         .keeps_errors = !is_remote_,
         .descriptors = descriptors_,
         .signal_with_parent = SIGTERM});
    if (!agent.ok()) {
      node.why_lost = absl::StrCat("no agent on ", node.host.name, ": ", agent.status().message());
      return;
    }
    node.agent = *agent;
    node.channel = std::make_unique<Channel>(agent->output, agent->input);
    node.errors = agent->errors;
    if (node.errors >= 0) fcntl(node.errors, F_SETFL, fcntl(node.errors, F_GETFL) | O_NONBLOCK);
    node.last_error.clear();
    node.heard_at = SteadyTime::Now();
  }

  // Starts ranks on the hosts that are there, at most max_nodes of them.
  void Begin() {
    std::vector<Node*> chosen;
    Gathering gathering;
    gathering.run_id = job_.run_id;
    gathering.restart = restarts_;
    gathering.max_restarts = options_.max_restarts;
    gathering.sets_devices = job_.sets_devices;
    gathering.devices = job_.devices;
    for (const auto& node : nodes_) {
      const bool is_full =
          options_.max_nodes > 0 && chosen.size() == static_cast<size_t>(options_.max_nodes);
      if (node->greeted && !is_full) chosen.push_back(node.get());
    }
    for (const Node* const node : chosen) gathering.hosts.push_back(node->host);
    if (job_.only.has_value()) gathering.hosts = job_.hosts;
    const bool is_alone = gathering.hosts.size() == 1;
    gathering.master_addr = is_alone ? "127.0.0.1" : chosen[0]->address;
    // Of the user it is the first host's.
    const bool has_first = chosen[0] == nodes_[0].get();
    if (!options_.master_addr.empty() && has_first) gathering.master_addr = options_.master_addr;
    gathering.master_port = options_.master_port > 0 ? options_.master_port : chosen[0]->port;
    if (job_.secret.has_value()) {
      gathering.secret = job_.secret->Derive({"start", absl::StrCat(restarts_)}).ToHex();
    }
    if (restarts_ > 0) {
      Say(absl::StrCat("starting ", CountRanks(gathering.hosts), " ranks on ", chosen.size(),
                       chosen.size() == 1 ? " host" : " hosts"));
    }
    std::vector<HostRanks> ranks = RanksOf(gathering);
    size_ = CountRanks(gathering.hosts);
    std::error_code ignored;
    StartOrder order = {.program = ProgramOf(options_),
                        .directory = std::filesystem::current_path(ignored).string(),
                        .log_directory = LogDirectory(),
                        .bind_cores = options_.bind_cores,
                        .grace = options_.grace,
                        .variables = {},
                        .ranks = {}};
    for (size_t n = 0; n < chosen.size(); ++n) {
      HostRanks& of_host = ranks[job_.only.has_value() ? static_cast<size_t>(*job_.only) : n];
      order.ranks = std::move(of_host.ranks);
      order.variables = std::move(of_host.variables);
      order.variables.insert(job_.exported.begin(), job_.exported.end());
      chosen[n]->has_ranks = true;
      chosen[n]->heard_at = SteadyTime::Now();
      chosen[n]->channel->Send(ToMessage(order));
    }
    stops_ = false;
    drop_at_ = SteadyTime::InfiniteFuture();
  }

  std::string LogDirectory() const {
    if (options_.log_directory.empty()) return "";
    std::error_code ignored;
    return std::filesystem::absolute(options_.log_directory, ignored).string();
  }

  void Turn() {
    std::vector<pollfd> polled = {
        {signals_, POLLIN, 0}, {printed_.end(), POLLOUT, 0}, {errors_.end(), POLLOUT, 0}};
    const bool listened = listens();
    for (const auto& node : nodes_) {
      Channel* const channel = node->channel.get();
      const bool has_more = channel != nullptr && listened && !node->said_all;
      polled.push_back({has_more ? channel->input() : -1, POLLIN, 0});
      polled.push_back({channel != nullptr ? channel->output() : -1, POLLOUT, 0});
      polled.push_back({listened ? node->errors : -1, POLLIN, 0});
    }
    const bool is_timed = is_remote_ || !all_greeted() || drop_at_ < SteadyTime::InfiniteFuture();
    const absl::Duration wait = is_timed ? absl::Milliseconds(20) : absl::Minutes(1);
    poll(polled.data(), polled.size(), static_cast<int>(absl::ToInt64Milliseconds(wait)));
    // One of them: both may be one pipe, which then has room for one.
    if (polled[1].revents != 0) {
      printed_.Write();
      TellOfLoss();
    } else if (polled[2].revents != 0) {
      errors_.Write();
    }
    if (!listened) {
      for (const auto& node : nodes_) node->heard_at = SteadyTime::Now();
    }
    if (polled[0].revents != 0) TakeSignals();
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (polled[3 + 3 * n].revents != 0) Listen(*nodes_[n]);
      if (polled[3 + 3 * n + 2].revents != 0) HearErrors(*nodes_[n]);
      if (nodes_[n]->channel != nullptr) nodes_[n]->channel->Flush();
    }
    Reap();
    Beat();
    if (SteadyTime::Now() < drop_at_) return;
    drop_at_ = SteadyTime::InfiniteFuture();
    for (const auto& node : nodes_) {
      if (node->is_connected()) {
        Drop(*node, absl::StrCat("host ", node->host.name, " is lost: its ranks do not end"));
      }
    }
  }

  // Once all is to end, nobody's output keeps the end waiting.
  bool listens() const {
    return ended_by_ != 0 || std::max(printed_.size(), errors_.size()) < kMostUnprinted;
  }

  bool all_greeted() const {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n->greeted; });
  }

  void TakeSignals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      const bool again = ended_by_ != 0;
      if (!again) ended_by_ = number;
      drop_at_ = SteadyTime::Now() + kAfterKill + (again ? absl::ZeroDuration() : options_.grace);
      SendAll(again ? Message{"kill"} : Message{"stop", absl::StrCat(number)});
    }
  }

  void SendAll(const Message& message) {
    for (const auto& node : nodes_) {
      if (node->channel != nullptr) node->channel->Send(message);
    }
  }

  void Listen(Node& node) {
    const absl::StatusOr<bool> more = node.channel->Read();
    node.heard_at = SteadyTime::Now();
    while (true) {
      const auto message = node.channel->Next();
      if (!message.ok()) {
        Drop(node, absl::StrCat(node.host.name, " says ", message.status().message()));
        return;
      }
      if (!message->has_value()) break;
      if (const absl::Status taken = Take(node, **message); !taken.ok()) {
        Drop(node, absl::StrCat(node.host.name, " says ", taken.message()));
        return;
      }
    }
    if (!more.ok() || !*more) node.said_all = true;
  }

  // Of ssh, and of what it runs there. False if there is nothing now.
  bool HearErrors(Node& node) {
    char bytes[4096];
    const ssize_t got = node.errors < 0 ? -1 : read(node.errors, bytes, sizeof(bytes));
    if (got < 0) return false;
    node.begun_error.append(bytes, static_cast<size_t>(got));
    const bool is_over = got == 0 || node.begun_error.size() > sizeof(bytes);
    for (size_t end; (end = node.begun_error.find('\n')) != std::string::npos ||
                     (is_over && !node.begun_error.empty());) {
      TellError(node, device::Printable(absl::StripAsciiWhitespace(node.begun_error.substr(0, end)),
                                        kMostError));
      node.begun_error.erase(0, end == std::string::npos ? end : end + 1);
    }
    if (got > 0) return true;
    close(std::exchange(node.errors, -1));
    return false;
  }

  void TellError(Node& node, const std::string& line) {
    if (line.empty()) return;
    // What ssh says behind the reason for which it was sent away.
    const bool is_farewell = absl::StartsWith(line, "Disconnected from ");
    if (!is_farewell || node.last_error.empty()) node.last_error = line;
    constexpr size_t kMostTold = 1000;
    if (node.told.size() >= kMostTold) node.told.clear();
    if (node.told.insert(line).second) {
      errors_.Print(absl::StrCat("[", node.host.name, "] ", line, "\n"));
    }
  }

  absl::Status Take(Node& node, const Message& message) {
    const std::string& kind = message[0];
    const auto needs = [&](size_t fields) {
      return message.size() == fields
                 ? absl::OkStatus()
                 : absl::InvalidArgumentError(
                       absl::StrCat(device::Quoted(kind), " of ", message.size(), " fields"));
    };
    if (kind == "noise") {
      errors_.Print(absl::StrCat("[", node.host.name, "] ", message[1], "\n"));
    } else if (kind == "hello") {
      BRIGADE_RETURN_IF_ERROR(needs(3));
      BRIGADE_ASSIGN_OR_RETURN(node.port, NumberIn(message, 2));
      node.address = message[1];
      node.greeted = true;
    } else if (kind == "output") {
      BRIGADE_RETURN_IF_ERROR(needs(4));
      Pass(message);
    } else if (kind == "ended") {
      BRIGADE_RETURN_IF_ERROR(needs(7));
      return TakeEnd(node, message);
    } else if (kind == "stopped") {
      BRIGADE_ASSIGN_OR_RETURN(node.port, NumberIn(message, 1));
      node.has_ranks = false;
    } else if (kind == "signalled") {
      BRIGADE_ASSIGN_OR_RETURN(const int number, NumberIn(message, 1));
      node.greeted = false;
      LoseRanks(node, absl::StrCat("was ended by ", SignalName(number)), 128 + number);
    }
    return absl::OkStatus();
  }

  // Lines of a rank.
  void Pass(const Message& message) {
    Printer& printer = message[2] == "1" ? printed_ : errors_;
    if (ended_by_ != 0 && printer.size() > kMostUnprinted) return;
    const std::string prefix = size_ > 1 ? absl::StrCat("[", message[1], "] ") : "";
    absl::string_view lines = message[3];
    // Of one rank every byte is passed on as it is.
    if (size_ == 1) printer.Print(std::exchange(lines, ""));
    while (!lines.empty()) {
      size_t end = std::min(lines.find_first_of("\n\r"), lines.size() - 1);
      if (lines[end] == '\r' && end + 1 < lines.size() && lines[end + 1] == '\n') ++end;
      printer.Print(prefix);
      printer.Print(lines.substr(0, end + 1));
      if (lines[end] != '\n' && lines[end] != '\r') printer.Print("\n");
      lines.remove_prefix(end + 1);
    }
  }

  absl::Status TakeEnd(const Node& node, const Message& message) {
    int numbers[5] = {};
    for (size_t i = 0; i < 5; ++i) {
      BRIGADE_ASSIGN_OR_RETURN(numbers[i], NumberIn(message, i + 1));
    }
    const auto [rank, process, code, signal, asked] = numbers;
    if (code == 0 || asked != 0) return absl::OkStatus();
    const std::string who = absl::StrCat("rank ", rank, " on ", node.host.name);
    const std::string how =
        process == 0 ? " did not start"
                     : absl::StrCat(" (process ", process, ") ",
                                    signal != 0 ? absl::StrCat("was ended by ", SignalName(signal))
                                                : absl::StrCat("ended with code ", code));
    Fail({absl::StrCat(who, how, message[6].empty() ? "" : ": ", message[6]), code, signal != 0});
    return absl::OkStatus();
  }

  // A start is over: the first failure counts, or a rank that was killed at once.
  void Fail(Failure failure) {
    if (ended_by_ != 0) return;
    const SteadyTime now = SteadyTime::Now();
    if (!failure_.has_value()) {
      failed_at_ = now;
      failure_ = std::move(failure);
    } else if (failure.by_signal && !failure_->by_signal && now - failed_at_ < kAtOnce) {
      failure_ = std::move(failure);
    }
    if (std::exchange(stops_, true)) return;
    drop_at_ = now + options_.grace + kAfterKill;
    for (const auto& node : nodes_) {
      if (node->has_ranks && node->channel != nullptr) {
        node->channel->Send({"stop", absl::StrCat(SIGTERM)});
      }
    }
  }

  // Nothing more is expected of it.
  void Drop(Node& node, std::string why) {
    if (!std::exchange(node.has_reason, true)) node.why_lost = std::move(why);
    node.said_all = true;
    kill(-node.agent.id, SIGKILL);
  }

  // Its agent has ended, or is about to. The first reason counts.
  void LoseRanks(Node& node, absl::string_view how, int code) {
    if (!std::exchange(node.has_reason, true)) {
      node.why_lost = absl::StrCat("host ", node.host.name, " is lost: its agent ", how);
    }
    if (node.has_ranks) Fail({node.why_lost, code == 0 ? kNoHosts : code, false});
  }

  void ReapAgent(Node& node) {
    int status = 0;
    if (!node.is_connected() || node.has_ended ||
        waitpid(node.agent.id, &status, WNOHANG) != node.agent.id) {
      return;
    }
    node.has_ended = true;
    // No more than a pipe has: another process may still write to it.
    for (int piece = 0; piece < 64 && HearErrors(node); ++piece) {
    }
    const int code = ExitCode(status);
    const bool is_of_ssh = is_remote_ && (!node.greeted || code == kSshFailed);
    node.refuses = !node.greeted && code == kSshFailed && IsRefusal(node.last_error);
    node.greeted = false;
    // An agent that lives on without what was between it and this process ends, too.
    node.channel->CloseOutput();
    LoseRanks(node,
              absl::StrCat(
                  WIFSIGNALED(status) ? absl::StrCat("was ended by ", SignalName(WTERMSIG(status)))
                                      : absl::StrCat("ended with code ", code),
                  // Else a warning of hours ago would be the reason.
                  is_of_ssh && !node.last_error.empty() ? absl::StrCat(": ", node.last_error) : ""),
              code);
  }

  void Reap() {
    for (const auto& each : nodes_) {
      Node& node = *each;
      ReapAgent(node);
      if (node.has_ended && node.said_all) Lose(node);
    }
    // Orphans of agents that were killed; agents themselves are waited for above.
    while (true) {
      siginfo_t info = {};
      if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
      const bool is_agent = std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& n) {
        return n->agent.id == info.si_pid && !n->has_ended;
      });
      if (is_agent) return;
      waitpid(info.si_pid, nullptr, WNOHANG);
    }
  }

  // Nothing of it is left.
  void Lose(Node& node) {
    if (!is_remote_) EndDescendants();
    node.has_ranks = node.greeted = node.has_ended = false;
    node.channel.reset();
    // Who still has the other end, as a connection that ssh keeps, is nobody's concern.
    if (node.errors >= 0) close(std::exchange(node.errors, -1));
    node.begun_error.clear();
    node.agent = {};
    node.heard_at = SteadyTime::InfiniteFuture();
  }

  // To and from other hosts.
  void Beat() {
    if (!is_remote_) return;
    const SteadyTime now = SteadyTime::Now();
    for (const auto& node : nodes_) {
      if (!node->is_connected() || node->said_all) continue;
      if (now - node->heard_at > options_.host_timeout) {
        Drop(*node, absl::StrCat("host ", node->host.name, " is lost: it has said nothing for ",
                                 absl::FormatDuration(options_.host_timeout)));
      }
    }
    if (now < beat_at_) return;
    beat_at_ = now + Heartbeat(options_.host_timeout);
    for (const auto& node : nodes_) {
      if (node->greeted && node->channel != nullptr) node->channel->Send({"alive"});
    }
  }

  // All agents, by the end of what they read.
  void End() {
    for (const auto& node : nodes_) {
      if (node->channel != nullptr) node->channel->CloseOutput();
    }
    const SteadyTime until = SteadyTime::Now() + options_.grace + options_.host_timeout;
    while (SteadyTime::Now() < until &&
           std::any_of(nodes_.begin(), nodes_.end(),
                       [](const auto& n) { return n->is_connected(); })) {
      Turn();
    }
    EndDescendants();
  }

  // What is left of it; after a signal only what somebody takes now.
  void PrintAll() {
    while (printed_.end() >= 0 || errors_.end() >= 0) {
      Printer& printer = printed_.end() >= 0 ? printed_ : errors_;
      pollfd polled[] = {{printer.end(), POLLOUT, 0}, {signals_, POLLIN, 0}};
      constexpr int kShortly = 200;
      if (poll(polled, 2, ended_by_ != 0 ? kShortly : -1) <= 0) return;
      if (polled[0].revents != 0) printer.Write();
      TellOfLoss();
      if (polled[1].revents != 0) TakeSignals();
    }
  }

  // Of a job without enough hosts.
  static constexpr int kNoHosts = 1;

  const JobOptions& job_;
  const Options& options_;
  const bool is_remote_;
  const int signals_ = OpenSignals();
  const rlim_t descriptors_ = RaiseDescriptorLimit();
  // Of the agents' names: two jobs of a user have others.
  const std::string id_ = absl::BytesToHexString(collectives::Nonce().substr(0, 8));
  std::vector<std::unique_ptr<Node>> nodes_;
  Printer printed_{1}, errors_{2};
  bool has_told_of_loss_ = false;
  int restarts_ = 0, size_ = 0;
  std::optional<Failure> failure_;
  bool stops_ = false;
  SteadyTime failed_at_ = SteadyTime::InfinitePast(), drop_at_ = SteadyTime::InfiniteFuture();
  // The signal to this process.
  int ended_by_ = 0;
  SteadyTime beat_at_ = SteadyTime::InfinitePast();
};

}  // namespace

int RunJob(const JobOptions& options) {
  AdoptOrphans();
  return Job(options).Run();
}

}  // namespace brigade::launch
