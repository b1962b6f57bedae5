#ifndef BRIGADE_COLLECTIVES_ENGINES_THREADS_THREAD_GROUP_H_
#define BRIGADE_COLLECTIVES_ENGINES_THREADS_THREAD_GROUP_H_

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/device/context.h"

namespace brigade::collectives {

class GroupState;

// Ranks that are threads of one process and reach each other's memory: on the CPU, or contexts of one GPU.
//
// A call meets the other ranks' calls on the host, where the last to come enqueues for all: kernels that read and
// write the ranks' arrays, ordered by events between the ranks' streams. So nothing blocks but the rendezvous,
// no message is copied, and the race checker sees every access. A rank must not wait for another one
// between the two's calls.
class ThreadGroup {
 public:
  struct Options {
    int size = 1;  // 1 to 64
    // How long a call waits for the others.
    std::chrono::nanoseconds timeout = std::chrono::minutes(10);
  };

  // InvalidArgument naming the value.
  static absl::StatusOr<std::shared_ptr<ThreadGroup>> Create(const Options& options);

  // The end of one rank; `context` must outlive it, and all ranks' contexts be on one device.
  // InvalidArgument for a rank out of range, AlreadyExists for one that is taken.
  absl::StatusOr<std::unique_ptr<Engine>> Join(int rank, device::Context& context);

  ~ThreadGroup();

 private:
  explicit ThreadGroup(std::shared_ptr<GroupState> state);

  std::shared_ptr<GroupState> state_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ENGINES_THREADS_THREAD_GROUP_H_
