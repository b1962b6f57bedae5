#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_SERVER_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_SERVER_H_

#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/internal/socket.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::collectives::internal {

// A message of the store's protocol is a list of strings (fields.h). Requests and their answers:
//
//   hello, kStoreProtocol, rank, size    code, text
//   set, key, value                      code, text
//   get, key, timeout in ms              code, value or text
//
// A group that cannot form is told so at once: that answer comes unasked, is the last, and says so
// by a third string.
constexpr absl::string_view kStoreProtocol = "brigade store 1";

// Serves keys and values to the ranks of one group, in a thread of its own.
class StoreServer {
 public:
  // Ranks that begin or end together do so within this.
  static constexpr absl::Duration kLinger = absl::Seconds(1);

  // Port 0 takes a free one. AlreadyExists if the port is in use.
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(int port, int size);
  ~StoreServer() { Stop(absl::UnavailableError("its process has closed it"), kLinger); }
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Serves on until all clients have gone and, if the group could not form, as many have come as
  // there are ranks, so that all know; at most for `linger`. Then ends the thread; who is still
  // there hears the reason. Only the first call counts.
  void Stop(const absl::Status& reason, absl::Duration linger);

  // The same, but all hear the reason at once, before they go: a connection that is closed while it
  // brings a request is reset, and takes with it what it had to tell.
  void GiveUp(const absl::Status& reason);

  int port() const { return port_; }

 private:
  struct Client {
    Socket socket;
    std::string received;
    // -1 until its first message has told.
    int rank = -1;
    // The key that it waits for; empty if it waits for none.
    std::string awaiting;
    absl::Time deadline = absl::InfiniteFuture();
    // Whether it has had its last answer.
    bool done = false;
  };

  StoreServer(Socket listener, int stop_read, int stop_write, int size);
  void Run();
  bool StopsNow();
  int PollTimeoutMs();
  void AcceptClient();
  void Hear(Client& client);
  void Handle(Client& client, const std::vector<std::string>& request);
  void Hello(Client& client, const std::vector<std::string>& request);
  void Set(Client& client, const std::string& key, const std::string& value);
  void ExpireGets();
  void FailAll(const absl::Status& reason);
  void Answer(Client& client, const absl::Status& status, const std::string& value = "");
  void AnswerLast(Client& client, const absl::Status& status);
  void Send(Client& client, const std::vector<std::string>& answer);

  Socket listener_;
  const int port_;
  const int size_;
  // A pipe that ends the thread.
  Socket stop_read_, stop_write_;
  device::Mutex stop_mutex_;
  absl::Status stop_reason_ ABSL_GUARDED_BY(stop_mutex_);
  bool gives_up_ ABSL_GUARDED_BY(stop_mutex_) = false;
  absl::Time stop_time_ ABSL_GUARDED_BY(stop_mutex_) = absl::InfiniteFuture();

  // Of the thread.
  std::list<Client> clients_;
  std::map<std::string, std::string> values_;
  // Addresses by rank, of those that have connected.
  std::map<int, std::string> addresses_;
  int hellos_ = 0;
  // Whether all have connected once.
  bool complete_ = false;
  absl::Status failure_;

  std::thread thread_;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_SERVER_H_
