#ifndef BRIGADE_COLLECTIVES_ENGINES_NCCL_COMMUNICATOR_H_
#define BRIGADE_COLLECTIVES_ENGINES_NCCL_COMMUNICATOR_H_

#include <atomic>
#include <chrono>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/collectives/engines/nccl/api.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::collectives {

// What a function of NCCL said.
struct NcclOutcome {
  NcclResult result;
  const char* function;
};

// One rank's ncclComm_t, non-blocking, and the lock under which it is called: the thread that makes
// calls, the one that looks for errors and one that aborts are never in NCCL at the same time. It
// also keeps the first error.
//
// Errors       The first one is final: it is told to the other ranks, the communicator is aborted,
//              and everything returns it.
// Threads      Create, Adopt, Do and Close from one at a time; the others from any.
class NcclCommunicator {
 public:
  using Clock = std::chrono::steady_clock;

  // `side` may be null and outlives this.
  NcclCommunicator(const NcclApi& api, Engine* side, int rank, absl::Duration timeout)
      : api_(api), side_(side), rank_(rank), timeout_(timeout) {}
  ~NcclCommunicator() { Close(); }

  // Allocates the failure flag. Before Create and Adopt.
  absl::Status Start(device::Context& context);

  // Makes the ncclComm_t by create(&comm), and waits until it is ready.
  absl::Status Create(absl::FunctionRef<NcclOutcome(NcclComm* comm)> create);

  // Takes an ncclComm_t that somebody else has made. One that is `lent` is never aborted or
  // destroyed.
  void Adopt(NcclComm comm, bool lent);

  // Calls call(comm), and waits on the host until NCCL has taken it: what follows in a stream is
  // then behind it. FailedPrecondition if there is no ncclComm_t.
  absl::Status Do(absl::FunctionRef<NcclOutcome(NcclComm comm)> call);

  // Ends the group with this error, unless it has ended before; returns what ended it.
  absl::Status Fail(const absl::Status& error);

  // Fails if NCCL reports an error, or if the other ranks have ended.
  void Look();

  absl::Status status() const;
  // Engine::failure_flag.
  const int32_t* failure_flag() const { return failure_flag_.as<const int32_t>().data(); }

  // Finalizes and destroys the ncclComm_t; aborts it where that takes longer than a second.
  void Close();

 private:
  NcclOutcome Poll(NcclOutcome outcome, Clock::time_point deadline);
  absl::Status Settle(NcclOutcome outcome);
  absl::Status NoCommunicator() const;
  absl::Status TroubleElsewhere();
  void End();

  const NcclApi& api_;
  Engine* const side_;
  const int rank_;
  const absl::Duration timeout_;

  // Held while NCCL is called.
  device::Mutex mutex_;
  NcclComm comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool lent_ ABSL_GUARDED_BY(mutex_) = false;

  mutable device::Mutex status_mutex_;
  absl::Status status_ ABSL_GUARDED_BY(status_mutex_);
  // Until when an error of the side channel may be that of a rank that has left.
  Clock::time_point grace_ends_ ABSL_GUARDED_BY(status_mutex_) = Clock::time_point::max();
  std::atomic<bool> failed_{false};
  // Page-locked.
  device::Buffer failure_flag_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_NCCL_COMMUNICATOR_H_
