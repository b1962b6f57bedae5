#ifndef BRIGADE_PARALLEL_PIPELINE_CHECK_H_
#define BRIGADE_PARALLEL_PIPELINE_CHECK_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/parallel/pipeline/item.h"

namespace brigade::parallel {

// The most buffers of each sort that a stage needs at once, if its items run in the order of its
// list. Each is of one chunk and one micro-batch.
struct StageBuffers {
  // What a forward pass keeps for its backward pass: from the forward pass to the backward pass, or
  // to the gradient of the weights.
  int64_t activations = 0;
  // What a chunk reads: from where it is received, or computed by another chunk of the stage, until
  // the chunk's activations are free. The model's first part reads none.
  int64_t inputs = 0;
  // From where they are computed until they are sent.
  int64_t outputs = 0;
  // Gradients of a chunk's outputs: from where they are received, or computed by another chunk of
  // the stage, to the backward pass, or to the gradient of the weights. The model's last part has
  // none.
  int64_t output_gradients = 0;
  // Gradients of a chunk's inputs: from where they are computed until they are sent.
  int64_t input_gradients = 0;

  friend bool operator==(const StageBuffers&, const StageBuffers&) = default;
};

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
// Memory       The buffers of each stage.
// Errors       InvalidArgument naming the items and their stages.
absl::StatusOr<std::vector<StageBuffers>> Check(const PipelineSchedule& schedule);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_CHECK_H_
