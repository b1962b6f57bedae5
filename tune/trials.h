#ifndef BRIGADE_TUNE_TRIALS_H_
#define BRIGADE_TUNE_TRIALS_H_

// What is measured on this machine: its figures, once, and short trainings of a configuration. All
// of it in this process, whose threads are the ranks.

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/train/times/recorder.h"
#include "brigade/tune/rank_model.h"
#include "brigade/tune/world.h"

namespace brigade::tune {

// The steps of a trial that count, from the first to the last, counted from 1.
struct TrialSteps {
  int64_t first = 3;
  int64_t last = 5;
  // Where these take less, so many more count: of some short steps what else a machine does is
  // too large a part. Not with replicas, whose rounds a trial would have to end with.
  double least_seconds = 0.1;
};

struct Measured {
  // Of a step, a mean over those that count, by what rank 0's streams did: the host hears of the
  // first ones late, when it has enqueued those behind them.
  double seconds = 0;
  // Steps that count.
  int64_t steps = 0;
  // The largest rank's peak, as its books have it.
  int64_t device_bytes = 0;
  // What the trainer's formulas say of the same rank.
  int64_t modelled_bytes = 0;
  // Of a step and a rank: the optimizer's part.
  double optimizer_seconds = 0;
};

// A training of so few steps and one, of the job's first texts, without evaluations but of one
// text, without checkpoints, and with a constant loss scale: no step may be skipped, for skipped
// ones are short. Cancelled if `stop` was set meanwhile; other errors are the training's. Of the
// job the memory limit counts: a trial that would need more ends with ResourceExhausted.
absl::StatusOr<Measured> Try(const gpt::Job& job, int ranks, const TrialSteps& steps,
                             const std::atomic<bool>& stop);

// The machine with so many ranks: what calls and bytes cost (collectives/measurement), and how fast
// memory is read and written. Seconds.
absl::Status MeasureMachine(World& world, Figures& figures);

// Of a shape that ranks share as the job says, at two micro-batches (trial.h): the job's, and one
// for `small_batch` texts. Its ranks are the world's, whose tracer is the recorder's.
absl::StatusOr<MeasuredCosts> MeasureCosts(const gpt::Job& job, int64_t small_batch,
                                           int64_t large_batch, World& world,
                                           train::Recorder& recorder);

// Processors that the process may use.
int Processors();

}  // namespace brigade::tune

#endif  // BRIGADE_TUNE_TRIALS_H_
