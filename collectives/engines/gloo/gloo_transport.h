#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_TRANSPORT_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/store.h"
#include "brigade/collectives/engines/transport/transport.h"
#include "brigade/device/threads/steady_time.h"

namespace brigade::collectives {

namespace internal {
class RankWaits;
}

struct GlooOptions {
  int rank = 0;
  int size = 1;
  // Not needed by a group of one.
  std::shared_ptr<Store> store;
  // The prefix of the group's keys in the store: the same for all members, and never used before,
  // also not by an attempt that failed.
  std::string prefix = "world";
  // How errors name a group that is a part of another one, and numbers its ranks itself: "group of
  // ranks 4 and 5". Empty: they say nothing.
  std::string name;
  // Where this rank listens: a network interface ("eth0"), else an address or name of this host,
  // else the address by which the store's server is reached, else this host's name.
  std::string interface;
  std::string host;
  // For all members to join and to connect. It began earlier if `connect_deadline` comes sooner, as
  // where the store's creation is a part of the same wait.
  absl::Duration connect_timeout = absl::Seconds(30);
  device::SteadyTime connect_deadline = device::SteadyTime::InfiniteFuture();
  // Of each Await and Flush.
  absl::Duration timeout = absl::Seconds(30);
  // Of CreateGlooEngine: TransportEngineOptions::verify_messages.
  bool verify_messages = false;
};

// Processes that are connected pairwise by Gloo over TCP.
//
// Culprits     At a deadline the rank asks the silent one whom it is waiting for itself, and so on:
//              the error names the one that does not answer or does not wait. It comes at most 0.1
//              timeouts after the deadline, or 1 s if that is more. A rank that waits in another
//              group of its own is not to blame: the deadline is put off until that group has
//              ended, by two timeouts at most.
// Sizes        A message of another size than expected is never received: DeadlineExceeded, and no
//              byte is written. (Gloo itself would end the process.)
// Allocation   Send, Expect, Await and Flush make none, but for the first time that many are
//              queued. Gloo makes about 3 a message.
// Queue        Send and Expect queue what Gloo's thread posts: what it cannot post is the error of
//              the next call or of the wait, and of status() from then on. Expect is announced with
//              the next Send, Await or Flush.
// Threads      Gloo's, one for deadlines, and one a peer that waits for its abort message.
// Signals      Creation sets SIGPIPE to be ignored if the process has no handler for it: Gloo
//              writes to sockets that may just have been closed.
class GlooTransport : public Transport {
 public:
  virtual const std::shared_ptr<Store>& store() const = 0;
};

// Connects with all others; for fewer ranks than the store has, renumbered from 0, as well.
//
// Errors       DeadlineExceeded naming the ranks that did not join; FailedPrecondition if sizes
//              differ; AlreadyExists if an attempt that failed had the prefix; Unavailable if a
//              rank died meanwhile, or naming the interface or host on which it cannot listen.
// Security     docs/security.md.
// Lifetime     `waits` is the rank's, of all its groups; null: it has no others.
absl::StatusOr<std::unique_ptr<GlooTransport>> CreateGlooTransport(
    const GlooOptions& options, std::shared_ptr<internal::RankWaits> waits = nullptr);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_TRANSPORT_H_
