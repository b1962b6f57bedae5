#ifndef BRIGADE_PARALLEL_PIPELINE_TRANSFERS_H_
#define BRIGADE_PARALLEL_PIPELINE_TRANSFERS_H_

#include "absl/status/status.h"
#include "brigade/parallel/pipeline/item.h"

namespace brigade::parallel {

// Puts the transfers into lists of computations so that no two stages can wait for each other,
// although a send and its receive meet.
//
// The lists run on a clock, on which a forward pass takes 1, a backward pass 2 and each of its parts
// 1. A transfer has the time at which what it sends is computed, and transfers have one order: by
// time, activations before gradients, then by micro-batch and by part of the model. On both of its
// stages each one comes before the first computation that starts at its time or later. So all items
// of all stages have one order, that of the clock, in which none waits for a later one.
//
// To receive just before and to send just after the computation is not safe: 1F1B of 2 stages and 2
// micro-batches has one stage send an activation and the other a gradient, each before it receives.
//
// Errors       InvalidArgument naming an item that is wrong, or that waits for one that never comes.
absl::Status PlaceTransfers(PipelineSchedule& computations);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_TRANSFERS_H_
