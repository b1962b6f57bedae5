#ifndef BRIGADE_EXAMPLES_GPT_PIPELINE_REPORT_H_
#define BRIGADE_EXAMPLES_GPT_PIPELINE_REPORT_H_

#include <string>

#include "absl/types/span.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/train/summary.h"

namespace brigade::gpt {

// Of a pipeline, else nothing: schedule, parts, and what share of a step each stage computes; and
// the step that the schedule's lists take with these times, where transfers take none, beside the
// one that was measured and that of the closed form (parallel::Bubble), which is of the mean stage.
// The measured one has transfers, collectives and the optimizer too. Of the ranks of a stage those
// count that compute longest: the others wait for them. Without times the schedule and the parts.
std::string PipelineReport(const Job& job, absl::Span<const train::RankSummary> ranks);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_PIPELINE_REPORT_H_
