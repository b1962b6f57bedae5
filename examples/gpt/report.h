#ifndef BRIGADE_EXAMPLES_GPT_REPORT_H_
#define BRIGADE_EXAMPLES_GPT_REPORT_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/train/observers/observer.h"
#include "brigade/train/summary.h"

namespace brigade::gpt {

// What is to be trained: model, ranks, stage, precision, batch, text. `ranks` says how many, and
// what they are.
std::string DescribeJob(const Job& job, const std::string& ranks);

// NgramLoss (corpus.h) of order 2 and 3. Counted beforehand: a report after Ctrl-C has no time for
// it.
struct NgramLosses {
  double bigram = 0, trigram = 0;
};

// Steps done, held-out loss beside that of n-gram models, and the loss curve.
std::string ProgressReport(const Job& job, const NgramLosses& ngrams,
                           absl::Span<const train::StepMetrics> steps,
                           absl::Span<const train::Evaluation> evaluations);

// Time, memory and traffic of each rank, beside the formulas.
std::string ResourceReport(const Job& job, absl::Span<const train::RankSummary> ranks);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_REPORT_H_
