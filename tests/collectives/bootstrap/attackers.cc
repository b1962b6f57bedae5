#include "brigade/tests/collectives/bootstrap/attackers.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/collectives/bootstrap/job.h"
#include "brigade/collectives/internal/handshake.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::device::SteadyTime;

using ConnectionsOf = std::function<std::vector<std::string>(const Target&)>;

// The same for every target.
ConnectionsOf Always(std::vector<std::string> connections) {
  return [connections = std::move(connections)](const Target&) { return connections; };
}

std::string Knock(const JobSecret& secret, int rank_of_server, const std::string& nonce) {
  return Frame(PackFields({std::string(internal::kProtocol), nonce,
                           secret.Sign({"knock", absl::StrCat(rank_of_server), nonce})}));
}

std::string TinyMessages() {
  std::string bytes;
  for (int i = 0; i < 1'000'000; ++i) bytes += Frame("");
  return bytes;
}

// What a server of a store says, and what Gloo sends with a control message of this code: the size
// of both, an operation, two numbers of buffers, the length and two places, then kind, code, rank
// and a text.
std::vector<std::string> StatusMessages() {
  std::vector<std::string> connections;
  for (int code = -1; code <= 18; ++code) {
    connections.push_back(Frame(PackFields({absl::StrCat(code), "a stranger", "last"})));
    std::string& message = connections.emplace_back();
    const auto add = [&](auto number) {
      message.append(reinterpret_cast<const char*>(&number), sizeof(number));
    };
    for (const uint64_t field : {uint64_t{1072}, uint64_t{0}, uint64_t{1} << 63, uint64_t{0},
                                 uint64_t{1024}, uint64_t{0}}) {
      add(field);
    }
    for (const int32_t field : {0, code, 0}) add(field);
    message.resize(1072, 's');
  }
  return connections;
}

}  // namespace

std::string Frame(const std::string& payload, uint32_t length) {
  const uint32_t header = htonl(length);
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + payload;
}
std::string Frame(const std::string& payload) {
  return Frame(payload, static_cast<uint32_t>(payload.size()));
}

std::string RandomBytes(size_t size) {
  std::mt19937 random(1);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

std::string RecordedHello(const JobSecret& secret, int rank_of_server, int rank, int size) {
  const std::string nonce = Nonce();
  return absl::StrCat(
      Knock(secret, rank_of_server, nonce),
      Frame(PackFields({secret.Sign({"client", absl::StrCat(rank_of_server), nonce, Nonce()})})),
      Frame(PackFields({"hello", absl::StrCat(rank), absl::StrCat(size), "", "", PackValues({})})));
}

const std::vector<Attack>& Attacks() {
  static const auto& attacks = *new std::vector<Attack>{
      {"Nothing", Always({""}), /*holds_on=*/true},
      {"RandomBytes", Always({RandomBytes(100'000)})},
      {"AMessageWithoutEnd", Always({Frame(std::string(10 << 20, 'a'), 11 << 20)})},
      {"ALongMessageWithinALongLength", Always({Frame(std::string(257, 'a'))})},
      {"TheLongestLength", Always({Frame("", 0xffffffff)})},
      {"TinyMessages", Always({TinyMessages()})},
      {"AnotherProtocol", Always({"GET / HTTP/1.1\r\n\r\n"})},
      {"AHelloWithoutProof",
       Always({Frame(PackFields({"hello", "1", "2", "", "", PackValues({})}))})},
      {"AKnockWithAnotherSecret",
       [](const Target& target) -> std::vector<std::string> {
         return {Knock(JobSecret::Random(), target.rank, Nonce()),
                 Knock(JobSecret::Public(), target.rank, Nonce())};
       }},
      {"StatusMessagesOfEveryCode", Always(StatusMessages())},
      {"HalfFrames", Always({std::string(2, '\0'), Frame("", 200), Frame("half", 200)}),
       /*holds_on=*/true},
  };
  return attacks;
}

std::vector<Attack> AttacksOnJobs() {
  std::vector<Attack> attacks = Attacks();
  attacks.push_back({"AReplay", [](const Target& target) { return target.recorded; }});
  attacks.push_back({"ACrowd", Always(std::vector<std::string>(1000, Frame("half", 200))), true});
  return attacks;
}

std::vector<OpenPort> OpenPortsOf(pid_t process) {
  std::set<std::string> sockets;  // of the process, as inodes
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(
           absl::StrCat("/proc/", process, "/fd"), std::filesystem::directory_options{}, error)) {
    const std::string name = std::filesystem::read_symlink(file.path(), error).string();
    if (absl::StartsWith(name, "socket:[")) sockets.insert(name.substr(8, name.size() - 9));
  }
  std::vector<OpenPort> open;
  for (const char* const path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(path);
    std::string line;
    std::getline(table, line);  // the titles
    while (std::getline(table, line)) {
      // number, local address, remote one, state, queues, timer, retransmissions, user, timeout,
      // inode.
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retries, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retries >> user >>
          timeout >> inode;
      if (state != "0A" || !sockets.contains(inode)) continue;  // 0A: it listens
      const size_t colon = local.find(':');
      open.push_back({static_cast<int>(std::stoul(local.substr(colon + 1), nullptr, 16)),
                      local.substr(0, colon) == "0100007F"});
    }
  }
  return open;
}

int OpenDescriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

void RaiseDescriptorLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

Strangers::~Strangers() {
  for (const Stranger& stranger : open_) close(stranger.fd);
}

absl::Status Strangers::Send(int port, std::shared_ptr<const std::string> bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "a stranger has no socket");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno != EINPROGRESS) {
    close(fd);
    return absl::OkStatus();  // the port has been closed meanwhile
  }
  ++connections_;
  open_.push_back({fd, std::move(bytes)});
  return absl::OkStatus();
}

void Strangers::Work(absl::Duration quiet) {
  SteadyTime last = SteadyTime::Now();
  while (true) {
    std::vector<pollfd> fds;
    for (const Stranger& stranger : open_) {
      const bool sends = stranger.sent < stranger.bytes->size();
      fds.push_back({stranger.fd, static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), 0});
    }
    const absl::Duration left = last + quiet - SteadyTime::Now();
    if (left <= absl::ZeroDuration()) return;
    poll(fds.data(), fds.size(),
         static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
    bool anything = false;
    size_t at = 0;
    for (Stranger& stranger : open_) {
      if (const short events = fds[at++].revents; events != 0 && Serve(stranger, events)) {
        anything = true;
      }
    }
    open_.remove_if([](const Stranger& stranger) { return stranger.fd < 0; });
    if (anything) last = SteadyTime::Now();
  }
}

bool Strangers::Serve(Stranger& stranger, short events) {
  bool anything = false;
  if ((events & POLLOUT) != 0 && stranger.sent < stranger.bytes->size()) {
    const ssize_t sent = send(stranger.fd, stranger.bytes->data() + stranger.sent,
                              stranger.bytes->size() - stranger.sent, MSG_NOSIGNAL);
    if (sent > 0) stranger.sent += static_cast<size_t>(sent);
    anything = sent > 0;
  }
  char heard[1000];
  const ssize_t count = recv(stranger.fd, heard, sizeof(heard), 0);
  if (count > 0) {
    stranger.heard += static_cast<size_t>(count);
    most_heard_ = std::max(most_heard_, stranger.heard);
  } else if (count == 0 || (errno != EAGAIN && errno != ENOTCONN)) {
    close(std::exchange(stranger.fd, -1));
  }
  return anything || count > 0 || stranger.fd < 0;
}

}  // namespace brigade::collectives::testing
