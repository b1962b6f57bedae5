#ifndef BRIGADE_TRAIN_STEP_PROFILER_H_
#define BRIGADE_TRAIN_STEP_PROFILER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/call_marks.h"
#include "brigade/collectives/communicator.h"
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
// Method       The stream of the passes is marked where a step begins (MarkStep), and here
//              behind the step's last operation: a step is what lies between, also of the other
//              streams, and no save or evaluation before it or behind it. The recorder keeps what
//              runs meanwhile. Three steps later, when all of it has ended, a thread of each rank
//              begins to make of it what ranks tell each other, over a channel of their own, and
//              that of rank 0 makes and writes the tables. With each step that begins it does one
//              piece of that, where all processors may be busy with the step: so no step has much
//              of it. As soon as nothing is under way it does all that is left. The observer is
//              told before the first step behind that, or when nothing is under way.
// Host waits   None in a step.
// Memory       Of the host: the operations of four steps.
// Errors       Of the output file, naming it, before the first step; of the ceilings
//              (profile::CeilingsOf); of the channel. A file that cannot be written when there is
//              a profile is trouble that the observer is told: it gets the tables instead.
class StepProfiler {
 public:
  // All must outlive it.
  struct Accounts {
    const Job& job;
    parallel::Grid& grid;
    device::Context& context;
    device::Stream& compute;
    Recorder& recorder;
    const zero::ZeroOptimizer& zero;
    const RankPart& part;
    RankBooks& books;
  };

  // A call of all ranks; waits. Measures the machine, or reads what it can do.
  static absl::StatusOr<std::unique_ptr<StepProfiler>> Create(const Accounts& accounts);
  ~StepProfiler();

  // Before a step is enqueued, 0 being the first. `observer` may be null.
  absl::Status BeforeStep(int64_t step, Observer* observer);
  // When it is enqueued.
  absl::Status AfterStep();
  // When nothing is under way and no step follows at once.
  absl::Status AtRest(Observer* observer);

 private:
  enum class State : uint8_t { kBefore, kIn, kBehind, kWorking, kDone };

  explicit StepProfiler(const Accounts& accounts) : of_(accounts) {}

  const profile::Options& options() const { return of_.job.config.profiler; }
  // Bytes by whom they have gone to, so far.
  std::vector<profile::Sent> SentSoFar() const;
  // All of the step has ended: takes it, and says what there is to do.
  void Prepare();
  // The thread is idle: has it do the next piece, or tells that all is done.
  absl::Status Continue(Observer* observer);
  absl::Status Tell(Observer* observer);
  // Pieces, on the thread.
  profile::RankStep StepOf(const Recorder::Operations& operations) const;
  absl::Status Exchange();
  absl::Status ReadRanks(int first);
  void MergeSteps();
  void Write();

  const Accounts of_;
  profile::Ceilings ceilings_;
  State state_ = State::kBefore;
  // As long as the step is enqueued.
  std::optional<collectives::MarkedCalls> marked_calls_;
  // Of the step; its begin, then the difference.
  std::vector<profile::Sent> sent_;
  // Of the ranks' threads; null for one rank.
  std::unique_ptr<collectives::Communicator> channel_;
  // Not begun yet.
  std::deque<std::function<absl::Status()>> pieces_;
  // The thread's, as long as it is busy: of the last piece; and what pieces hand on.
  absl::Status worked_;
  Recorder::Operations operations_;
  profile::RankStep mine_;
  std::vector<std::string> told_;
  std::vector<profile::RankStep> steps_;
  ProfileEvent event_;
  // Of the output file.
  absl::Status trouble_;
  // Last: it uses the others.
  std::unique_ptr<device::TaskThread> worker_;
};

}  // namespace brigade::train

#endif  // BRIGADE_TRAIN_STEP_PROFILER_H_
