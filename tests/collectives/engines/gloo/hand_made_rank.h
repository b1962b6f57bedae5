#ifndef BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_HAND_MADE_RANK_H_
#define BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_HAND_MADE_RANK_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/collectives/bootstrap/tcp_store.h"
#include "brigade/collectives/engines/gloo/gloo_transport.h"
#include "brigade/collectives/internal/socket.h"

namespace brigade::collectives::testing {

// Bytes on a new connection with a port of this host, which stays open as long as the socket.
absl::StatusOr<internal::Socket> ConnectTo(int port, const std::string& bytes = "");

// Whether the other end closes the connection, having said nothing, before the time is over.
bool IsClosedWithin(internal::Socket& socket, absl::Duration time);

// Where a rank of the group "world" listens, as soon as it has published that.
absl::StatusOr<int> PortOf(Store& store, int rank);

// Options to create the transport of one rank of "world", which wait for kNever.
GlooOptions OptionsOf(int rank, int size, std::shared_ptr<Store> store);

// A rank of the group "world" which takes its part in the creation step by step, so that a test can
// do otherwise.
class HandMadeRank {
 public:
  static absl::StatusOr<HandMadeRank> Join(int rank, int size, int port);

  // Where others are to connect to, 0 for nowhere.
  absl::Status Publish(int listening_port);
  absl::Status PublishFields(const std::vector<std::string>& fields);

  // What the group has made of that secret of its job, as soon as all have published.
  absl::StatusOr<JobSecret> GroupSecret(const JobSecret& of_job);
  absl::StatusOr<JobSecret> GroupSecret() { return GroupSecret(store_->secret()); }

  // A connection with a lower rank on which this one has proved itself.
  absl::StatusOr<internal::Socket> ProveTo(int rank);
  // Says which rank this is, waits until the other end has taken the connection, and says that this
  // rank is connected with all.
  absl::Status BeTaken(internal::Socket& socket);
  // The same, and keeps the connection as long as this object lives.
  absl::Status Stay(internal::Socket socket);
  // Of a connection that a higher rank has made: hears its proof, and which rank it is; says the
  // rest.
  absl::Status HearProof(internal::Socket& socket);
  void Take(internal::Socket socket);

  Store& store() { return *store_; }

 private:
  HandMadeRank(int rank, int size, std::shared_ptr<Store> store)
      : rank_(rank), size_(size), store_(std::move(store)) {}

  int rank_, size_;
  std::shared_ptr<Store> store_;
  std::vector<internal::Socket> kept_ = {};
};

}  // namespace brigade::collectives::testing

#endif  // BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_HAND_MADE_RANK_H_
