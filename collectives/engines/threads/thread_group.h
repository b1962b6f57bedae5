#ifndef BRIGADE_COLLECTIVES_ENGINES_THREADS_THREAD_GROUP_H_
#define BRIGADE_COLLECTIVES_ENGINES_THREADS_THREAD_GROUP_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/device/context.h"

namespace brigade::collectives {

class GroupState;

// Ranks that are threads of one process and reach each other's memory: on the CPU, or contexts of
// one GPU.
//
// A call waits on the host until the other ranks make it, and the last of them enqueues it for all:
// kernels that read and write the ranks' arrays, ordered by events between the ranks' streams. No
// message is copied, and the race checker sees every access.
//
// Waiting      Calls that wait for each other end at once, with an error that names two of them. A
//              rank must not wait for another one by other means, a lock or a stream, while that
//              waits for it in a call: only the timeout ends this. The deadline knows the waits of
//              its own group: it names a rank that waits in another one, which names the next.
// Errors       On the call, before anything of it is enqueued, but for DeadlineExceeded by
//              `stream_timeout`, which Communicator::status and the next call tell. A call whose
//              enqueueing fails half-way, because a stream has failed meanwhile or memory is out,
//              may have written to the ranks' arrays.
// Streams      No error reaches work that is enqueued: a stream that waits for another rank's
//              stream goes on when that does, also after an error. Where the other one hangs for
//              good, Stream::Synchronize does too.
// Subgroups    Live as long as the engines of their ranks. Of one that a rank has not joined yet,
//              because it is gone, this group keeps the shared state.
// Threads      One for each group of several ranks, if `stream_timeout` is a limit.
class ThreadGroup {
 public:
  struct Options {
    // 1 to 64.
    int size = 1;
    // How long a call waits on the host for the other ranks' calls.
    absl::Duration timeout = absl::Minutes(10);
    // How long a call that a rank's stream has reached waits for the other ranks' streams, which
    // are still at work of their own: the error names them at most a second, or a twentieth of the
    // limit, later. InfiniteDuration sets no limit.
    absl::Duration stream_timeout = absl::Minutes(10);
  };

  // InvalidArgument naming the value.
  static absl::StatusOr<std::shared_ptr<ThreadGroup>> Create(const Options& options);

  int size() const;

  // The engine of one rank; `context` must outlive it. InvalidArgument for a rank out of range, or
  // on another device than the ranks that have joined; AlreadyExists for a rank that is taken.
  absl::StatusOr<std::unique_ptr<Engine>> Join(int rank, device::Context& context);

  // Ends the group with this error, which is not OK, as Engine::Abort does: for a rank that fails
  // before it has joined, of which the others would not hear. Ranks that join later get it from
  // Join. Any number of times, from any thread; the first error stays.
  void Abort(const absl::Status& reason);

  ~ThreadGroup();

 private:
  explicit ThreadGroup(std::shared_ptr<GroupState> state);

  std::shared_ptr<GroupState> state_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_THREADS_THREAD_GROUP_H_
