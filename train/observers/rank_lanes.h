#ifndef BRIGADE_TRAIN_OBSERVERS_RANK_LANES_H_
#define BRIGADE_TRAIN_OBSERVERS_RANK_LANES_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/threads/mutex.h"
#include "brigade/train/times/step_times.h"

namespace brigade::train {

// Brings the times of a step of all ranks to rank 0, where each rank is a process, for a page that
// shows what they did beside each other.
//
// Method       A thread of each rank, over a channel of their own (CreateHostChannel): at each
//              interval ranks tell which steps they have, and of the last one that all have its
//              times; none while some ranks alone have gone back to an earlier step. No thread of
//              the training waits, and nothing of it is in a step.
// Clocks       Steady clocks of one machine are the same; those of others are set by what all ranks
//              read when they have met in Start, as exact as they leave a call together.
// Errors       End the exchange on all ranks, and nothing else: the page keeps what it has.
class RankLanes {
 public:
  // On rank 0: a step of every rank, by rank, on rank 0's clock. On a thread of this object.
  using Sink = std::function<void(std::vector<StepTime>)>;

  explicit RankLanes(Sink sink, absl::Duration interval = absl::Seconds(1));
  // Without Finish the other ranks' exchange ends too.
  ~RankLanes();
  RankLanes(const RankLanes&) = delete;
  RankLanes& operator=(const RankLanes&) = delete;

  // What this rank has done, step by step; where a training goes back to an earlier one, what it
  // had done before is of no use any more. Keeps some hundred steps, never waits for another rank;
  // before Start, and behind the end, it keeps nothing. Safe from any thread.
  void Keep(std::vector<StepTime> steps);

  // A call of all ranks, of which some may have no lanes (null, or those of another training that
  // is not at its end): then none has. Waits. Errors of the communicator.
  static absl::Status Start(RankLanes* lanes, collectives::Communicator& world);
  // A call of all ranks, behind the last step: waits until all have come, or the exchange has
  // failed.
  void Finish();
  // Ends it, on the other ranks too, unless it has ended; and frees what it has of the
  // communicator's context, which must be there until then.
  void Abort();

  // Steps are exchanged.
  bool active() const { return active_.load(std::memory_order_relaxed); }

 private:
  absl::Status Begin(collectives::Communicator& world);
  void Loop();
  // True: all ranks are done.
  absl::StatusOr<bool> Exchange(bool done);

  const Sink sink_;
  const absl::Duration interval_;
  std::atomic<bool> active_ = false;
  std::unique_ptr<collectives::Communicator> channel_;
  // To be added to this rank's times.
  int64_t clock_ns_ = 0;

  device::Mutex mutex_;
  device::CondVar ends_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  // In ascending order, behind those that were told.
  std::deque<StepTime> steps_ ABSL_GUARDED_BY(mutex_);
  // The last one that was kept, told or not; and how often one was no later than the one before it.
  int64_t last_kept_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t returns_ ABSL_GUARDED_BY(mutex_) = 0;

  std::thread thread_;
};

// As text and back. InvalidArgument for other text. Without the seconds of passes.
std::string ToText(const StepTime& step);
absl::StatusOr<StepTime> StepTimeFromText(absl::string_view text);

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_OBSERVERS_RANK_LANES_H_
