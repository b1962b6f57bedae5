#include "brigade/tests/collectives/engines/gloo/hand_made_rank.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/bootstrap/fields.h"
#include "brigade/collectives/internal/handshake.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/steady_time.h"
#include "brigade/tests/collectives/engines/gloo/processes.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::collectives::internal::Socket;

// What a rank says when it is connected with all.
constexpr char kConnected = 2;

device::SteadyTime Never() { return device::SteadyTime::Now() + kNever; }

bool AwaitInput(const Socket& socket, absl::Duration time) {
  pollfd fd = {socket.fd(), POLLIN, 0};
  return poll(&fd, 1, static_cast<int>(absl::ToInt64Milliseconds(time))) > 0;
}

}  // namespace

absl::StatusOr<Socket> ConnectTo(int port, const std::string& bytes) {
  BRIGADE_ASSIGN_OR_RETURN(Socket socket, Socket::Connect("127.0.0.1", port, Never()));
  send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return socket;
}

bool IsClosedWithin(Socket& socket, absl::Duration time) {
  char byte;
  return AwaitInput(socket, time) && recv(socket.fd(), &byte, 1, 0) <= 0;
}

absl::StatusOr<int> PortOf(Store& store, int rank) {
  BRIGADE_ASSIGN_OR_RETURN(const std::string published,
                           store.Get(absl::StrCat("world/", rank), kNever));
  BRIGADE_ASSIGN_OR_RETURN(const auto fields, UnpackFields(published));
  sockaddr_in address = {};
  if (fields.size() != 3 || fields[2].size() != sizeof(address)) {
    return absl::InternalError("no address of IPv4 was published");
  }
  std::memcpy(&address, fields[2].data(), sizeof(address));
  return ntohs(address.sin_port);
}

GlooOptions OptionsOf(int rank, int size, std::shared_ptr<Store> store) {
  GlooOptions options;
  options.rank = rank;
  options.size = size;
  options.store = std::move(store);
  options.connect_timeout = kNever;
  options.timeout = kNever;
  return options;
}

absl::StatusOr<HandMadeRank> HandMadeRank::Join(int rank, int size, int port) {
  BRIGADE_ASSIGN_OR_RETURN(auto store, TcpStore::Create(StoreOptions(rank, size, port)));
  return HandMadeRank(rank, size, std::move(store));
}

absl::Status HandMadeRank::Publish(int listening_port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(listening_port));
  return PublishFields({absl::StrCat(size_), Nonce(),
                        std::string(reinterpret_cast<const char*>(&address), sizeof(address))});
}

absl::Status HandMadeRank::PublishFields(const std::vector<std::string>& fields) {
  return store_->Set(absl::StrCat("world/", rank_), PackFields(fields), kNever);
}

absl::StatusOr<JobSecret> HandMadeRank::GroupSecret(const JobSecret& of_job) {
  std::vector<std::string> known = {"gloo", "world"};
  BRIGADE_ASSIGN_OR_RETURN(const auto all,
                           GetOfAllRanks(*store_, "world/", size_, kNever, "'world'"));
  for (const std::string& published : all) {
    BRIGADE_ASSIGN_OR_RETURN(const auto fields, UnpackFields(published));
    known.push_back(fields.at(1));
  }
  return of_job.Derive(known);
}

absl::StatusOr<Socket> HandMadeRank::ProveTo(int rank) {
  BRIGADE_ASSIGN_OR_RETURN(const JobSecret secret, GroupSecret());
  BRIGADE_ASSIGN_OR_RETURN(const int port, PortOf(*store_, rank));
  BRIGADE_ASSIGN_OR_RETURN(Socket socket, ConnectTo(port));
  BRIGADE_RETURN_IF_ERROR(internal::ProveToServer(secret, rank, socket, Never()));
  return socket;
}

absl::Status HandMadeRank::BeTaken(Socket& socket) {
  BRIGADE_RETURN_IF_ERROR(socket.SendFrame(absl::StrCat(rank_), Never()));
  char byte = 0;
  if (AwaitInput(socket, absl::Minutes(10)) && recv(socket.fd(), &byte, 1, 0) == 1 && byte == 1) {
    send(socket.fd(), &kConnected, 1, MSG_NOSIGNAL);
    return absl::OkStatus();
  }
  return absl::UnavailableError("a rank was not taken");
}

absl::Status HandMadeRank::Stay(Socket socket) {
  BRIGADE_RETURN_IF_ERROR(BeTaken(socket));
  kept_.push_back(std::move(socket));
  return absl::OkStatus();
}

absl::Status HandMadeRank::HearProof(Socket& socket) {
  BRIGADE_ASSIGN_OR_RETURN(const JobSecret secret, GroupSecret());
  internal::ServerHandshake handshake(secret, rank_);
  while (!handshake.is_proved()) {
    BRIGADE_ASSIGN_OR_RETURN(const std::string frame, socket.ReceiveFrame(Never()));
    BRIGADE_ASSIGN_OR_RETURN(const std::string answer, handshake.Hear(frame));
    if (!answer.empty()) BRIGADE_RETURN_IF_ERROR(socket.SendFrame(answer, Never()));
  }
  return socket.ReceiveFrame(Never()).status();
}

void HandMadeRank::Take(Socket socket) {
  const char words[] = {1, kConnected};
  send(socket.fd(), words, sizeof(words), MSG_NOSIGNAL);
  kept_.push_back(std::move(socket));
}

}  // namespace brigade::collectives::testing
