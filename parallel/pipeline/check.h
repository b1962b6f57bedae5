#ifndef BRIGADE_PARALLEL_PIPELINE_CHECK_H_
#define BRIGADE_PARALLEL_PIPELINE_CHECK_H_

#include <vector>

#include "absl/status/statusor.h"
#include "brigade/parallel/pipeline/buffers.h"
#include "brigade/parallel/pipeline/item.h"

namespace brigade::parallel {

// Proves that the lists of all stages, run as they are with sends that meet their receives, are a
// step:
// - each chunk has, for each micro-batch, a forward pass and then a backward pass, or its two parts
//   in order, each once: so activations are made before they are used, and are freed once;
// - each chunk takes backward passes, or gradients of inputs and of weights, in ascending
//   micro-batches, in which gradients are added;
// - what another stage needs is sent, after it is computed, and received, before it is used;
// - of one node for each computation, for each send with its receive and for each collective, and
//   an edge from each item of a list to the next, the graph has no cycle: so no stages wait for
//   each other.
//
// Memory       The most buffers of each sort that each stage needs at once, if its items run in the
//              order of its list.
// Errors       InvalidArgument naming the items and their stages.
absl::StatusOr<std::vector<StageBuffers>> Check(const PipelineSchedule& schedule);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_CHECK_H_
