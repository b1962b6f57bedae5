#ifndef BRIGADE_CHECKPOINT_JOINT_WORK_H_
#define BRIGADE_CHECKPOINT_JOINT_WORK_H_

#include <atomic>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/threads/task_thread.h"

namespace brigade::checkpoint {

// Work that every rank does at its own pace, over a host channel. Ranks that have done theirs hear
// meanwhile that the others are there, so that none is given up because a disk is slow.
//
// Threads      One at a time, but for Cancel and is_cancelled. One of its own.
class JointWork {
 public:
  // ResourceExhausted without a thread.
  static absl::StatusOr<std::unique_ptr<JointWork>> Create(
      std::unique_ptr<collectives::Communicator> channel);

  // Runs `work` on every rank; a call of all. OK if it is on all of them; else this rank's own
  // error, or, if it has none, that of the first rank that has one; both name the rank. Once `work`
  // has failed on a rank, is_cancelled is true on all, where it should end soon, with any result.
  absl::Status Run(absl::FunctionRef<absl::Status()> work);

  // From any thread: this rank goes, and no other may take what it leaves undone for done. Every
  // Run fails from now on.
  void Cancel();
  bool is_cancelled() const { return cancelled_; }
  // After a Run that has failed: the next ones are others.
  void BeginAnew() { cancelled_ = false; }

  // For other exchanges, while nothing runs.
  collectives::Communicator& channel() { return *channel_; }

 private:
  JointWork(std::unique_ptr<collectives::Communicator> channel,
            std::unique_ptr<device::TaskThread> thread)
      : channel_(std::move(channel)), thread_(std::move(thread)) {}

  const std::unique_ptr<collectives::Communicator> channel_;
  const std::unique_ptr<device::TaskThread> thread_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_JOINT_WORK_H_
