#ifndef BRIGADE_MONITOR_DASHBOARD_LOOPBACK_SERVER_H_
#define BRIGADE_MONITOR_DASHBOARD_LOOPBACK_SERVER_H_

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/monitor/dashboard/http_request.h"

namespace brigade::monitor {

struct LoopbackServerOptions {
  // 0: any that is free.
  int port = 0;
  // What is sent for a path, on the server's thread.
  std::function<HttpResponse(const std::string& path)> handler;
  // Of a request, up to its empty line.
  size_t most_head_bytes = 8192;
  // At one time. One more takes the place of the oldest.
  size_t most_connections = 64;
  // For a request to be there, and for an answer to be taken.
  absl::Duration request_patience = absl::Seconds(5);
  absl::Duration answer_patience = absl::Seconds(15);
};

// A web server for this machine alone: it listens on 127.0.0.1. One request a connection.
//
// Strangers    Whoever asks for nothing, for too much or too slowly, or does not take his answer
//              keeps a place for as long as patience says, or until others need it, and nothing
//              else: one thread serves all, and waits for none of them. ParseRequest says who is
//              answered.
// Threads      One of its own, of low priority.
class LoopbackServer {
 public:
  // Listens. Errors: what the system says, naming the port.
  static absl::StatusOr<std::unique_ptr<LoopbackServer>> Create(LoopbackServerOptions options);
  // Closes all connections; waits for a call of the handler at most.
  ~LoopbackServer();
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  int port() const { return port_; }

 private:
  struct Connection;

  LoopbackServer(LoopbackServerOptions options, int listener, int stop, int port);

  void Serve();
  void Accept();
  // False: it is over.
  bool Advance(Connection& connection, short events);
  bool ReadHead(Connection& connection);
  bool Send(Connection& connection);
  void Answer(Connection& connection, const HttpResponse& response, bool is_head);

  const LoopbackServerOptions options_;
  const int listener_;
  // Written to by the end.
  const int stop_;
  const int port_;
  // Oldest first.
  std::list<Connection> connections_;
  // No connection can be taken: the process has too many files open.
  bool is_full_ = false;

  // Last: it uses the others.
  std::thread thread_;
};

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_DASHBOARD_LOOPBACK_SERVER_H_
