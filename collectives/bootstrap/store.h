#ifndef BRIGADE_COLLECTIVES_BOOTSTRAP_STORE_H_
#define BRIGADE_COLLECTIVES_BOOTSTRAP_STORE_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "brigade/collectives/bootstrap/job_secret.h"
#include "brigade/device/threads/steady_time.h"
#include "gloo/rendezvous/store.h"

namespace brigade::collectives {

// Where the ranks of a group tell each other how to connect: keys and values that all can see.
// Also a store for Gloo's own contexts, to which it reports errors by gloo::IoException.
//
// Keys         Set once, until they are removed. A group that forms anew takes fresh keys.
// Ranks        Those with which the store was made, whatever groups are formed later.
// Errors       Unavailable if the store cannot be reached; AlreadyExists if two processes have the
//              same rank, FailedPrecondition if world sizes differ: on all ranks, and then final.
// Threads      Safe from any thread; a Get holds up other calls on the same store.
class Store : public ::gloo::rendezvous::Store {
 public:
  // AlreadyExists if the key has another value; Unavailable if the store does not answer within
  // `timeout`, as of Remove.
  virtual absl::Status Set(const std::string& key, const std::string& value,
                           absl::Duration timeout) = 0;

  // Waits until the key is set. DeadlineExceeded naming it after `timeout`; with none, a look.
  virtual absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) = 0;

  // Makes room where all who need the value have it: afterwards the key is not set. OK also if it
  // was not.
  virtual absl::Status Remove(const std::string& key, absl::Duration timeout) = 0;

  // After ranks have died: makes the store work for these ones. Each of them calls it with the same
  // list. Keys set before may be lost; afterwards use fresh ones.
  virtual absl::Status KeepSurvivors(absl::Span<const int> survivors, absl::Duration timeout) = 0;

  // The address by which the others can reach this process, or "" where nothing tells.
  virtual std::string local_host() const = 0;

  // What the ranks of the store know, and nobody else; JobSecret::Public() where they share none.
  virtual JobSecret secret() const = 0;

  // For Gloo.
  void set(const std::string& key, const std::vector<char>& data) final;
  std::vector<char> get(const std::string& key) final;
  void wait(const std::vector<std::string>& keys) final;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) final;
};

// Of one group: rank 0's process serves all of them, with a descriptor each.
inline constexpr int kMostRanks = 16384;

// InvalidArgument if a group of this size has no such rank, or cannot be.
absl::Status CheckRank(int rank, int size);

// "rank 2", "ranks 2, 3 and 5"; of more than 32: "ranks 0, 1, [...], 31 and 5 others".
std::string RankNames(absl::Span<const int> ranks);

// The value of prefix + rank for every rank of 0 to size - 1, waiting for `timeout` in all, which
// began earlier if `deadline` comes sooner.
// DeadlineExceeded: "<ranks> did not join <where> within <timeout>".
absl::StatusOr<std::vector<std::string>> GetOfAllRanks(
    Store& store, const std::string& prefix, int size, absl::Duration timeout,
    const std::string& where, device::SteadyTime deadline = device::SteadyTime::InfiniteFuture());

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_BOOTSTRAP_STORE_H_
