#ifndef BRIGADE_TRAIN_STEP_PROFILER_H_
#define BRIGADE_TRAIN_STEP_PROFILER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/call_marks.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/device/threads/task_thread.h"
#include "brigade/parallel/grid.h"
#include "brigade/profile/roofline.h"
#include "brigade/profile/step_profile.h"
#include "brigade/profile/trace_rows.h"
#include "brigade/train/observers/observer.h"
#include "brigade/train/rank_books.h"
#include "brigade/train/task.h"
#include "brigade/train/times/recorder.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::train {

// What names of operations and events mean for a profile.
profile::TraceNames NamesOfTrace();

// Profiles one step of a rank, as job.config.profiler says.
//
// Method       Marks on the stream of the passes where the step begins, and behind its last
//              operation: a step is what lies between, also of the other streams, and no save or
//              evaluation before it or behind it. The recorder keeps what runs meanwhile. Three
//              steps later, when all of it has ended, or as soon as nothing is under way, ranks
//              tell each other what they have seen, and rank 0 makes and writes the tables on a
//              thread of its own: a disk may be slow. The observer is told before the first step
//              behind that, or when nothing is under way.
// Host waits   One call of all ranks on the host, three steps after the step; none in other steps.
// Memory       Of the host: the operations of four steps.
// Errors       Of the output file, naming it, before the first step and when it is written; of the
//              ceilings (profile::CeilingsOf).
class StepProfiler {
 public:
  // All must outlive it.
  struct Accounts {
    const Job& job;
    parallel::Grid& grid;
    const Task& task;
    device::Context& context;
    device::Stream& compute;
    Recorder& recorder;
    const zero::ZeroOptimizer& zero;
    const RankPart& part;
    RankBooks& books;
  };

  // A call of all ranks; waits. Measures the machine, or reads what it can do.
  static absl::StatusOr<std::unique_ptr<StepProfiler>> Create(const Accounts& accounts);

  // Before a step is enqueued, 0 being the first. `observer` may be null.
  absl::Status BeforeStep(int64_t step, Observer* observer);
  // When it is enqueued.
  absl::Status AfterStep(int64_t step);
  // When nothing is under way and no step follows at once.
  absl::Status AtRest(Observer* observer);

 private:
  enum class State : uint8_t { kBefore, kIn, kBehind, kWriting, kDone };

  explicit StepProfiler(const Accounts& accounts) : of_(accounts) {}

  const profile::Options& options() const { return of_.job.config.profiler; }
  // Bytes by whom they have gone to, so far.
  std::vector<profile::Sent> SentSoFar() const;
  // Tells the other ranks, and has rank 0 write.
  absl::Status Finish();
  // On the writer's thread: makes event_ of what ranks have told.
  absl::Status Write(const std::vector<std::string>& told);
  // What has been written.
  absl::Status Tell(Observer* observer);
  profile::RankStep StepOf(const Recorder::Operations& operations) const;

  const Accounts of_;
  profile::Ceilings ceilings_;
  State state_ = State::kBefore;
  // As long as the step is enqueued.
  std::optional<collectives::MarkedCalls> marked_calls_;
  // Of the step; its begin, then the difference.
  std::vector<profile::Sent> sent_;
  // The writer's, as long as it is busy.
  ProfileEvent event_;
  absl::Status written_;
  // Of rank 0. Last: it uses the others.
  std::unique_ptr<device::TaskThread> writer_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_STEP_PROFILER_H_
