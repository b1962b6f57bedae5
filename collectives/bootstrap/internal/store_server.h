#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_SERVER_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_SERVER_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/internal/store_protocol.h"
#include "brigade/collectives/internal/socket.h"
#include "brigade/collectives/internal/stranger_log.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives::internal {

// Serves keys and values to the ranks of one group, in a thread of its own.
//
// Strangers    Hear nothing, change nothing, and hold a connection for kHandshakeTimeout. The first
//              is named on standard error.
class StoreServer {
 public:
  // Ranks that begin or end together do so within this.
  static constexpr absl::Duration kLinger = absl::Seconds(1);

  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(Socket listener,
                                                            const StoreServerOptions& options);
  ~StoreServer() { Stop(absl::UnavailableError("its process has closed it"), kLinger); }
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Serves on until all clients have gone and, if the group could not form, as many have come as
  // there are ranks, so that all know; at most for `linger`. Then ends the thread; who is still
  // there hears the reason. Only the first call counts.
  void Stop(const absl::Status& reason, absl::Duration linger);

  // The same, but all hear the reason at once, before they go: a connection that is closed while it
  // brings a request is reset, and takes with it what it had to tell. Returns what they hear: the
  // reason, and who was refused, if anybody was.
  absl::Status GiveUp(const absl::Status& reason);

  int port() const { return port_; }
  // Of a hello.
  const std::string& token() const { return protocol_.token(); }

 private:
  struct Connection {
    explicit Connection(Socket from) : socket(std::move(from)) {}

    Socket socket;
    StoreProtocol::Client* client = nullptr;
  };

  StoreServer(Socket listener, int stop_read, int stop_write, const StoreServerOptions& options);
  void Run();
  bool StopsNow();
  bool IsClosed();
  int PollTimeoutMs();
  void AcceptClients();
  void Hear(Connection& connection);
  // Of the clients that the protocol has closed.
  void CloseConnections();

  Socket listener_;
  const int port_;
  StrangerLog strangers_;
  // Of the thread, but for its token.
  StoreProtocol protocol_;
  const int size_;
  // A pipe that ends the thread.
  Socket stop_read_, stop_write_;
  device::Mutex stop_mutex_;
  absl::Status stop_reason_ ABSL_GUARDED_BY(stop_mutex_);
  bool gives_up_ ABSL_GUARDED_BY(stop_mutex_) = false;
  device::SteadyTime stop_time_ ABSL_GUARDED_BY(stop_mutex_) = device::SteadyTime::InfiniteFuture();

  // Of the thread.
  std::list<Connection> connections_;
  // Until then none is accepted: there are no descriptors.
  device::SteadyTime accepts_again_ = device::SteadyTime::InfinitePast();

  std::thread thread_;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_SERVER_H_
