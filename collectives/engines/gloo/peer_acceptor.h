#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_PEER_ACCEPTOR_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_PEER_ACCEPTOR_H_

#include <poll.h>

#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/collectives/internal/frame_buffer.h"
#include "brigade/collectives/internal/handshake.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/collectives/internal/stranger_log.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {

// What a server says when it has taken a connection.
inline constexpr char kTaken = 1;

// The server's end of peer_sockets.h: takes the connections of all higher ranks, then listens no
// more, and closes those that have not proved themselves. Of one thread, which waits by poll(2).
class PeerAcceptor {
 public:
  // `sockets`, as many as there are ranks, gets what is taken.
  PeerAcceptor(const JobSecret& secret, int rank, Socket listener, std::vector<Socket>& sockets);

  bool is_complete() const { return missing_ == 0; }

  // Adds what is to be polled for, and hears the same list again with what came of it.
  void Watch(std::vector<pollfd>& fds) const;
  void Hear(absl::Span<const pollfd> fds);
  // When it is to be heard at the latest, whatever came.
  device::SteadyTime wakes_at() const;

  // Closes a connection that has not proved itself: the oldest, but those whose first frame was
  // right come last. False if there is none.
  bool MakeRoom(absl::string_view why);

 private:
  // One who has connected.
  struct Client {
    Client(Socket its_socket, const JobSecret& secret, int rank)
        : socket(std::move(its_socket)),
          address(socket.peer_address()),
          handshake(secret, rank),
          deadline(device::SteadyTime::Now() + kHandshakeTimeout) {}

    Socket socket;
    const std::string address;
    ServerHandshake handshake;
    // Whether its first frame was right.
    bool has_knocked = false;
    FrameBuffer received = {};
    const device::SteadyTime deadline;
  };

  void Accept();
  void Hear(Client& client);
  void Take(Client& client, const std::string& frame);
  void Refuse(Client& client, absl::string_view why);

  const JobSecret secret_;
  const int rank_;
  Socket listener_;
  std::vector<Socket>& sockets_;
  int missing_;
  StrangerLog strangers_;
  std::list<Client> clients_;
  // There are no descriptors until then.
  device::SteadyTime accepts_again_ = device::SteadyTime::InfinitePast();
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_PEER_ACCEPTOR_H_
