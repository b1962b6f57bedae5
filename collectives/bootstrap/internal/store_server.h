#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_SERVER_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_SERVER_H_

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/internal/handshake.h"
#include "brigade/collectives/bootstrap/internal/socket.h"
#include "brigade/collectives/bootstrap/job.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::collectives::internal {

// After the handshake (handshake.h) a message is a list of strings (fields.h). Requests and their
// answers:
//
//   hello, rank, size, token, job, values    code, text
//   set, key, value                          code, text
//   get, key, timeout in ms                  code, value or text
//   remove, key                              code, text
//
// `token` is the server's own if its process speaks, else empty; `values` are names and values in
// turn. A group that cannot form is told so at once: that answer comes unasked, is the last, and
// says so by a third string, kLast. One who meets a whole group hears kWhole instead: it may be the
// group before his own.
inline constexpr absl::string_view kLast = "last", kWhole = "whole";

// Of the keys and values of a server, and of what its clients have half sent: each of the groups
// that are made takes some 150 bytes for each pair of ranks. A quarter of the memory is less.
inline constexpr size_t kMostStoreBytes = 64 << 20, kMostStoreBytesPerPair = 16 << 10;
// Connections that have not proved yet what they know; the oldest makes room for the next.
inline constexpr int kMostUnproved = 64;

struct StoreServerOptions {
  // What every connection proves to know.
  JobSecret secret = JobSecret::Public();
  // The rank of this process, for which nobody else can speak.
  int rank = 0;
  int size = 1;
  JobIdentity job = {};
};

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
  const std::string& token() const { return token_; }

 private:
  struct Client {
    Client(Socket from, const JobSecret& secret, int rank_of_server)
        : socket(std::move(from)),
          address(socket.peer_address()),
          handshake(secret, rank_of_server),
          deadline(absl::Now() + kHandshakeTimeout) {}

    Socket socket;
    const std::string address;
    FrameBuffer received;
    ServerHandshake handshake;
    // -1 until its hello.
    int rank = -1;
    // The key that it waits for.
    std::optional<std::string> awaiting;
    // Of the handshake and the hello, then of what it waits for.
    absl::Time deadline;
    // Whether it has had its last answer.
    bool done = false;
  };

  StoreServer(Socket listener, int stop_read, int stop_write, const StoreServerOptions& options);
  void Run();
  bool StopsNow();
  bool IsClosed();
  int PollTimeoutMs();
  void AcceptClients();
  void Hear(Client& client);
  void HearFrame(Client& client, const std::string& frame);
  void Handle(Client& client, const std::vector<std::string>& request);
  void Hello(Client& client, const std::vector<std::string>& request);
  void Refuse(Client& client, const absl::Status& why, bool concerns_all);
  void Set(Client& client, const std::string& key, const std::string& value);
  void Close(Client& client);
  void CloseStranger(Client& client, const std::string& why);
  void Expire();
  void FailAll(const absl::Status& reason);
  size_t HalfSentBytes() const;
  size_t MostBytes() const;
  void Answer(Client& client, const absl::Status& status, const std::string& value = "");
  void AnswerLast(Client& client, const absl::Status& status, absl::string_view how);
  void Send(Client& client, const std::string& frame);

  Socket listener_;
  const int port_;
  const StoreServerOptions options_;
  const std::string token_;
  // A pipe that ends the thread.
  Socket stop_read_, stop_write_;
  device::Mutex stop_mutex_;
  absl::Status stop_reason_ ABSL_GUARDED_BY(stop_mutex_);
  bool gives_up_ ABSL_GUARDED_BY(stop_mutex_) = false;
  absl::Time stop_time_ ABSL_GUARDED_BY(stop_mutex_) = absl::InfiniteFuture();

  // Of the thread.
  std::list<Client> clients_;
  std::map<std::string, std::string> values_;
  size_t values_bytes_ = 0;
  // Addresses by rank, of those that have connected.
  std::map<int, std::string> addresses_;
  int hellos_ = 0;
  int64_t strangers_ = 0;
  // What the last one heard who was refused alone.
  std::string refusal_;
  // Whether all have connected once.
  bool whole_ = false;
  // Until then none is accepted: there are no descriptors, which has been said.
  bool is_short_ = false;
  absl::Time accepts_again_ = absl::InfinitePast();
  absl::Status failure_;

  std::thread thread_;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_SERVER_H_
