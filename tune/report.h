#ifndef BRIGADE_TUNE_REPORT_H_
#define BRIGADE_TUNE_REPORT_H_

// What the tuner prints.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/train/config/autotuning.h"
#include "brigade/tune/setup.h"
#include "brigade/tune/tuner.h"

namespace brigade::tune {

// How many points there are, and why those that are left out are.
std::string DescribeSearch(const Search& search);

// A line for each candidate that was tried, the fastest first: what it needs, as predicted and as
// measured; its time, or throughput, likewise.
std::string TrialTable(const std::vector<Candidate>& candidates, train::TuningMetric metric,
                       int ranks);
// How well the predicted order was the measured one.
std::string OrderReport(const std::vector<Candidate>& candidates);

// "12.3 ms", "850 texts/s", "0.52 TFLOP/s a rank".
std::string ShowMetric(double seconds, const gpt::Job& job, train::TuningMetric metric, int ranks);

// Bytes of a rank for the states of a job's model in each stage: ours, of all that zero/ keeps, and
// what DeepSpeed's estimators, its autotuner and Accelerate would say.
absl::StatusOr<std::string> EstimateTable(const gpt::Job& job);

// A change with which something would fit, and what it needs then.
struct Help {
  std::string what;
  int64_t device_bytes = 0;
  int64_t short_bytes = 0;
};
// Of a search in which nothing fits: how many bytes are missing, of what, and what would help, each
// by itself: other values of what is not tuned, half the context, half the layers. `make_job` and
// `model` are the search's.
std::string DescribeNoFit(const Search& search, const Limits& limits,
                          const std::vector<Help>& helps);
absl::StatusOr<std::vector<Help>> FindHelp(const TuningSetup& setup,
                                           const gpt::ModelOptions& gpt_model,
                                           const Candidate& smallest, const MakeJob& make_job,
                                           const Limits& limits, RankModel& model);

}  // namespace brigade::tune

#endif  // BRIGADE_TUNE_REPORT_H_
