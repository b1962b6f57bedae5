#ifndef BRIGADE_PARALLEL_PLAN_PIPELINE_TIME_H_
#define BRIGADE_PARALLEL_PLAN_PIPELINE_TIME_H_

// What a pipeline adds to the work of its stages, summed up without running lists. What has no
// closed form in schedule_kind.h was read off its simulation, and tests compare both.

#include "brigade/parallel/pipeline/schedule_kind.h"

namespace brigade::parallel {

// Bubble (schedule_kind.h). Where that has none, in zb-v, (p-1) max(b/2, b - w), from 2p - 1
// micro-batches on; with fewer (p-1) b, which is too much between p and 2p - 1. For passes of
// models: b is not shorter than f, nor f than w.
double BubbleSeconds(const PipelineShape& shape, const StageTimes& times);

// Of transfers that take `hop` each, which nothing hides: the way to the last part of the model and
// back, once. In 1F1B neighbours wait for each other, 2 (p-1)/p hops in every other micro-batch; in
// zb-h1, too, until the passes of weights hide it after another way there and back. Each edge and
// direction has a channel of its own.
double TransferSeconds(const PipelineShape& shape, double hop);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PLAN_PIPELINE_TIME_H_
