#ifndef BRIGADE_TUNE_TUNER_H_
#define BRIGADE_TUNE_TUNER_H_

// The search: all points of a space by what they need and are predicted to take, a few of them
// measured, the best of these.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/train/config/autotuning.h"
#include "brigade/train/times/recorder.h"
#include "brigade/tune/rank_model.h"
#include "brigade/tune/space.h"
#include "brigade/tune/trials.h"
#include "brigade/tune/world.h"

namespace brigade::tune {

// Of each rank, in bytes; 0: none.
struct Limits {
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;
  // Of device and host together, where they are one memory.
  int64_t both_bytes = 0;
};

struct Candidate {
  Point point;
  // The config.
  std::string text;
  // Without the text to train on.
  gpt::Job job;
  Prediction prediction;
  // The least seconds of a step over the rounds in which it was tried; none: it was not, or failed.
  std::optional<Measured> measured = {};
  // Why it has none although it was tried.
  absl::Status failed = {};
  bool was_tried = false;
};

// Of all points: those that fit, and why the others are none.
struct Search {
  int64_t points = 0;
  // By the reason; of the config or of a plan.
  std::map<std::string, int64_t> refused;
  int64_t too_large = 0;
  std::vector<Candidate> fitting;
  // Of those too large, and with what it needs, the one that is short of least.
  std::optional<Candidate> smallest;
};

// Makes a job of a config, as the trainer would.
using MakeJob = std::function<absl::StatusOr<gpt::Job>(const std::string& config)>;

// Bytes that a candidate needs beyond the limits; 0 or less: it fits.
int64_t ShortBytes(const Prediction& prediction, const Limits& limits);

// All points of a space by their memory. Where a config with recompute "none" does not fit, it is
// tried with "budget:BYTES" of what the rest leaves. Cancelled if `stop` was set meanwhile; errors
// of the world. What a config or a planner refuses is counted and is no error.
absl::StatusOr<Search> FindFitting(const Json& config, const Space& space, const Totals& totals,
                                   const MakeJob& make_job, const Limits& limits, RankModel& model,
                                   const std::atomic<bool>& stop);

// Of the micro-batches of candidates that fit the `count` largest.
void KeepLargestMicroBatches(int64_t count, std::vector<Candidate>& candidates);

// Measures what the model's times need, for the shapes of the candidates, and predicts theirs. One
// short trial of the smallest candidate says how fast updates are. `corpus` is the jobs' text.
// Cancelled as above.
absl::Status PredictTimes(const gpt::Corpus& corpus, World& world, train::Recorder& recorder,
                          Figures& figures, RankModel& model, std::vector<Candidate>& candidates,
                          const std::atomic<bool>& stop);

// In which candidates are tried. By the model those with the shortest predicted times, but of
// candidates that differ in bucket, live units and algorithm alone one comes before the others of
// all: their times hardly differ, and all trials would be of one family.
std::vector<size_t> OrderOfTrials(const std::vector<Candidate>& candidates, train::TunerType type,
                                  uint64_t seed);

// Measures a candidate; Cancelled ends the trials.
using Trial = std::function<absl::StatusOr<Measured>(const Candidate&)>;

// The trials of trials.h, within the limit of the device. The corpus and `stop` outlive it.
Trial TrialsOnThreads(int ranks, const TrialSteps& steps, const gpt::Corpus& corpus,
                      const Limits& limits, const std::atomic<bool>& stop);

struct TrialPlan {
  int64_t trials = train::kTrialsOfModel;
  int64_t early_stopping = 5;
  // Times that the best ones are tried, by turns: what else the machine does falls on all.
  int rounds = 4;
};

// Tries candidates in this order, and then by turns those near the best: in the second round those
// that took less than twice as long, then those within a tenth. Calls `after_each` behind each
// trial, with the candidate's index. Ends early when `stop` is set: what was tried
// before it counts. A trial that fails is told of in its candidate.
void RunTrials(const std::vector<size_t>& order, const TrialPlan& plan, const Trial& trial,
               std::vector<Candidate>& candidates, const std::atomic<bool>& stop,
               const std::function<void(size_t)>& after_each);

// The fastest that was measured; of none nullopt.
std::optional<size_t> BestOf(const std::vector<Candidate>& candidates);

// Of numbers and others at the same places: 1 where one order is the other, -1 where it is its
// reverse; equal ones share a rank. 0 of fewer than two, and where all are equal.
// Source: Spearman, 1904.
double RankCorrelation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace brigade::tune

#endif  // BRIGADE_TUNE_TUNER_H_
