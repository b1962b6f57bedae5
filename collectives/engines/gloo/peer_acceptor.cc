#include "brigade/collectives/engines/gloo/peer_acceptor.h"

#include <sys/socket.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {

using ::brigade::device::SteadyTime;

PeerAcceptor::PeerAcceptor(const JobSecret& secret, int rank, Socket listener,
                           std::vector<Socket>& sockets)
    : secret_(secret),
      rank_(rank),
      listener_(std::move(listener)),
      sockets_(sockets),
      missing_(static_cast<int>(sockets.size()) - 1 - rank),
      strangers_(listener_.local_port()) {
  if (is_complete()) listener_.Close();
}

void PeerAcceptor::Watch(std::vector<pollfd>& fds) const {
  // poll(2) passes over -1.
  const bool accepts = SteadyTime::Now() >= accepts_again_;
  fds.push_back({accepts ? listener_.fd() : -1, POLLIN, 0});
  for (const Client& client : clients_) fds.push_back({client.socket.fd(), POLLIN, 0});
}

void PeerAcceptor::Hear(absl::Span<const pollfd> fds) {
  size_t at = 1;
  for (Client& client : clients_) {
    if (fds[at++].revents != 0) Hear(client);
    if (client.socket.fd() >= 0 && client.deadline <= SteadyTime::Now()) {
      Refuse(client, absl::StrCat("it said nothing that counts for ",
                                  absl::FormatDuration(kHandshakeTimeout)));
    }
  }
  if (fds[0].revents != 0) Accept();
  clients_.remove_if([](const Client& client) { return client.socket.fd() < 0; });
  if (!is_complete()) return;
  listener_.Close();
  clients_.clear();
}

SteadyTime PeerAcceptor::wakes_at() const {
  SteadyTime next = SteadyTime::InfiniteFuture();
  for (const Client& client : clients_) next = std::min(next, client.deadline);
  return accepts_again_ > SteadyTime::Now() ? std::min(next, accepts_again_) : next;
}

bool PeerAcceptor::MakeRoom(absl::string_view why) {
  Client* leaves = nullptr;
  for (Client& client : clients_) {
    if (client.socket.fd() < 0) continue;
    if (leaves == nullptr || (leaves->has_knocked && !client.has_knocked)) leaves = &client;
  }
  if (leaves != nullptr) Refuse(*leaves, why);
  return leaves != nullptr;
}

void PeerAcceptor::Accept() {
  absl::StatusOr<Socket> socket = listener_.Accept();
  if (absl::IsResourceExhausted(socket.status())) {
    // Who has connected is accepted in the next turn.
    if (MakeRoom("no descriptors are left")) return;
    strangers_.AcceptsNobody(socket.status().message());
    accepts_again_ = SteadyTime::Now() + kAcceptPause;
  }
  if (!socket.ok()) return;
  strangers_.Accepts();
  const auto is_open = [](const Client& client) { return client.socket.fd() >= 0; };
  if (std::count_if(clients_.begin(), clients_.end(), is_open) >= kMostUnproved) {
    MakeRoom("too many connect at once");
  }
  clients_.emplace_back(*std::move(socket), secret_, rank_);
  Hear(clients_.back());
}

void PeerAcceptor::Hear(Client& client) {
  const absl::Status received = client.socket.Receive(client.received, 1);
  std::string frame;
  while (client.socket.fd() >= 0) {
    const absl::StatusOr<bool> taken = client.received.Take(kMostUnprovedBytes, frame);
    if (!taken.ok()) return Refuse(client, taken.status().message());
    if (!*taken) break;
    if (client.handshake.is_proved()) return Take(client, frame);
    const absl::StatusOr<std::string> answer = client.handshake.Hear(frame);
    if (!answer.ok()) return Refuse(client, answer.status().message());
    if (answer->empty()) continue;
    client.has_knocked = true;
    // It fits into the memory of a new connection.
    if (!client.socket.SendFrame(*answer, SteadyTime::Now()).ok())
      return Refuse(client, "it has gone");
  }
  if (!received.ok()) Refuse(client, "it has gone");
}

void PeerAcceptor::Take(Client& client, const std::string& frame) {
  size_t rank = 0;
  if (!absl::SimpleAtoi(frame, &rank) || rank <= static_cast<size_t>(rank_) ||
      rank >= sockets_.size() || sockets_[rank].fd() >= 0 || client.received.size() > 0) {
    return Refuse(client, "it says what no rank says that is still to come");
  }
  if (send(client.socket.fd(), &kTaken, 1, MSG_NOSIGNAL) != 1) {
    return Refuse(client, "it has gone");
  }
  sockets_[rank] = std::move(client.socket);
  --missing_;
}

void PeerAcceptor::Refuse(Client& client, absl::string_view why) {
  strangers_.Refused(client.address, why);
  client.socket.Close();
}

}  // namespace brigade::collectives::internal
