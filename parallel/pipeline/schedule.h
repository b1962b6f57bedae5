#ifndef BRIGADE_PARALLEL_PIPELINE_SCHEDULE_H_
#define BRIGADE_PARALLEL_PIPELINE_SCHEDULE_H_

#include "absl/status/statusor.h"
#include "brigade/parallel/pipeline/item.h"
#include "brigade/parallel/pipeline/schedule_kind.h"

namespace brigade::parallel {

// What each stage computes and in which order, without transfers. Each chunk takes backward passes,
// and gradients of weights, in ascending micro-batches, whatever the schedule: sums over
// micro-batches then have the same bits as without a pipeline.
//
// On stage s of p, m micro-batches, v chunks:
//   kGpipe                  all forward passes, all backward passes
//   kOneForwardOneBackward  min(p-1-s, m) forward passes, then forward and backward by turns
//   kInterleaved            the same after min(2 (p-1-s) + (v-1) p, m v), where both go over groups
//                           of p micro-batches, in a group over chunks, in a chunk over
//                           micro-batches; backward passes from the last chunk to the first
//   kZeroBubbleH1           as 1F1B; weights of i after inputs of i + s, what is left at the end
//   kZeroBubbleV            2 (p-s) - 1 forward passes of chunk 0, s of both chunks by turns, and
//                           p-s times forward and backward of chunk 1; then by turns a forward pass
//                           and a backward pass of each chunk; weights wait at the end, where the
//                           last s micro-batches have none between their passes
//
// Errors       Those of Validate (schedule_kind.h).
// Source       schedule_kind.h.
absl::StatusOr<PipelineSchedule> ComputationsOf(const PipelineShape& shape);

// The same with transfers, placed as transfers.h says: what a pipeline runs.
absl::StatusOr<PipelineSchedule> CreateSchedule(const PipelineShape& shape);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_SCHEDULE_H_
