#ifndef BRIGADE_EXAMPLES_GPT_PIPELINE_REPORT_H_
#define BRIGADE_EXAMPLES_GPT_PIPELINE_REPORT_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/examples/gpt/model_part.h"
#include "brigade/train/times/pass_times.h"

namespace brigade::gpt {

// Of one rank: its chunks, of which there are at most kMaxChunks, and the means of their passes.
// `stages` has the sums over `micro_batches` of all steps, [stage of the model] (PassTimes): what
// ran, without waits and collectives. What is made again counts with the gradients of inputs.
std::array<ChunkSummary, train::kMaxChunks> ChunkSummaries(
    absl::Span<const train::PassSeconds> stages, absl::Span<const StageRange> chunks,
    int64_t micro_batches);

// Of a pipeline, else nothing: schedule, parts, and what share of a step each stage computes; and
// the step that the schedule's lists take with these times, where transfers take none, beside the
// one that was measured and that of the closed form (parallel::Bubble), which is of the mean stage.
// The measured one has transfers, collectives and the optimizer too. Of the ranks of a stage those
// count that compute longest: the others wait for them. Without times the schedule and the parts.
std::string PipelineReport(const Job& job, absl::Span<const RankSummary> ranks);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_PIPELINE_REPORT_H_
