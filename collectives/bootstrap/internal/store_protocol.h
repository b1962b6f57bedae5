#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_PROTOCOL_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_PROTOCOL_H_

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/job.h"
#include "brigade/collectives/internal/frame_buffer.h"
#include "brigade/collectives/internal/handshake.h"
#include "brigade/device/threads/steady_time.h"

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
// that are made takes some 200 bytes for each rank. A quarter of the memory is less.
inline constexpr size_t kMostStoreBytes = 64 << 20, kMostStoreBytesPerRank = 64 << 10;

struct StoreServerOptions {
  // What every connection proves to know.
  JobSecret secret = JobSecret::Public();
  // The rank of this process, for which nobody else can speak.
  int rank = 0;
  int size = 1;
  JobIdentity job = {};
};

// What a server makes of the bytes of its clients: bytes in, frames out. Its owner has the
// connections.
//
// Strangers    Hear nothing, change nothing, and hold a connection for kHandshakeTimeout.
// Memory       MostBytes of keys and values, and as much of what clients have half sent.
class StoreProtocol {
 public:
  // Whether a frame could be sent within `timeout`.
  using Sender = std::function<bool(absl::string_view frame, absl::Duration timeout)>;
  // Hears of each client that is closed because it is no rank of the group.
  using StrangerListener = std::function<void(const std::string& address, const std::string& why)>;

  struct Client {
    Client(std::string from, Sender sender, const JobSecret& secret, int rank_of_server)
        : address(std::move(from)),
          send(std::move(sender)),
          handshake(secret, rank_of_server),
          deadline(device::SteadyTime::Now() + kHandshakeTimeout) {}

    const std::string address;
    const Sender send;
    // What has come and is not heard yet.
    FrameBuffer received;
    ServerHandshake handshake;
    // -1 until its hello.
    int rank = -1;
    // The key that it waits for.
    std::optional<std::string> awaiting;
    // Of the handshake and the hello, then of what it waits for.
    device::SteadyTime deadline;
    // Whether it has had its last answer.
    bool done = false;
    // Its connection is to be closed; it stays until ForgetClosed.
    bool closed = false;
  };

  StoreProtocol(const StoreServerOptions& options, StrangerListener on_stranger);
  StoreProtocol(const StoreProtocol&) = delete;
  StoreProtocol& operator=(const StoreProtocol&) = delete;

  // Of a hello.
  const std::string& token() const { return token_; }

  Client& Accept(std::string address, Sender send);
  // Beside one that was accepted, or not: closes the oldest client that has not proved what it
  // knows, if there are kMostUnproved of them, or ResourceExhausted says why none was. Whether it
  // did.
  bool MakeRoom(const absl::Status& accepted);
  // Takes what the client has received; `has_gone`: nothing follows it.
  void Hear(Client& client, bool has_gone);
  // Answers or closes those whose deadline is over.
  void Expire();
  // Of all clients.
  device::SteadyTime NextDeadline() const;
  void ForgetClosed() {
    clients_.remove_if([](const Client& client) { return client.closed; });
  }

  // All ranks, and those who come later, hear the reason as their last answer.
  void FailAll(const absl::Status& reason);
  // What FailAll was told, and OK before.
  const absl::Status& failure() const { return failure_; }
  // What the last one heard who was refused alone.
  const std::string& refusal() const { return refusal_; }
  int hellos() const { return hellos_; }

  // Of keys and values, and of what is half sent.
  size_t MostBytes() const;

 private:
  void HearFrame(Client& client, const std::string& frame);
  void Handle(Client& client, const std::vector<std::string>& request);
  void Hello(Client& client, const std::vector<std::string>& request);
  void Refuse(Client& client, const absl::Status& why, bool concerns_all);
  void Set(Client& client, const std::string& key, const std::string& value);
  void Close(Client& client);
  void CloseStranger(Client& client, const std::string& why);
  size_t HalfSentBytes() const;
  void Answer(Client& client, const absl::Status& status, const std::string& value = "");
  void AnswerLast(Client& client, const absl::Status& status, absl::string_view how);
  void Send(Client& client, const std::string& frame);

  const StoreServerOptions options_;
  const StrangerListener on_stranger_;
  const std::string token_;

  std::list<Client> clients_;
  std::map<std::string, std::string> values_;
  size_t values_bytes_ = 0;
  // Addresses by rank, of those that have connected.
  std::map<int, std::string> addresses_;
  int hellos_ = 0;
  std::string refusal_;
  // Whether all have connected once.
  bool whole_ = false;
  absl::Status failure_;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_INTERNAL_STORE_PROTOCOL_H_
