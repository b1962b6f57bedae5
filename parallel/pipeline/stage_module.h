#ifndef BRIGADE_PARALLEL_PIPELINE_STAGE_MODULE_H_
#define BRIGADE_PARALLEL_PIPELINE_STAGE_MODULE_H_

#include "absl/status/status.h"
#include "brigade/device/stream.h"

namespace brigade::parallel {

// One computation of a list: which chunk and micro-batch, and where it finds its arrays. An array
// at the boundary of two parts is memory of the stage's device, of the size and type that the
// executor was created with.
struct StagePass {
  static constexpr int kNone = -1;

  int chunk = 0;
  int micro_batch = 0;
  // Which of StageBuffers::activations of the stage holds what this micro-batch's forward pass of
  // the chunk keeps, from the forward pass to the backward pass or to the gradient of the weights.
  int activations = 0;
  // Which of StageBuffers::deferred holds what BackwardInput leaves to BackwardWeight; kNone in the
  // other passes.
  int deferred = kNone;

  // What the chunk reads; the same values from the forward pass on until `activations` is free.
  // Null in the model's first part.
  const void* input = nullptr;
  // Of Forward: what the chunk computes. Null in the model's last part.
  void* output = nullptr;
  // Of the backward passes: the gradient of what the chunk has computed. Null in the model's last
  // part. Backward, which is the last to read it, may write over it.
  void* output_gradient = nullptr;
  // Of Backward and BackwardInput: the gradient of what the chunk has read. Null in the model's
  // first part.
  void* input_gradient = nullptr;
};

// What a stage of a pipeline computes.
//
// Stream       Calls enqueue on `compute`, which is the same stream in all calls, or end in order
//              with it; they never wait.
// Determinism  Gradients of weights are added up in the order of the calls, which come in ascending
//              micro-batches of each chunk.
// Errors       End the step.
class StageModule {
 public:
  virtual ~StageModule() = default;

  virtual absl::Status Forward(const StagePass& pass, device::Stream& compute) = 0;
  // Gradients of the input and of the weights.
  virtual absl::Status Backward(const StagePass& pass, device::Stream& compute) = 0;
  // One of them each: of schedules that split the backward pass (SplitsBackward).
  virtual absl::Status BackwardInput(const StagePass& pass, device::Stream& compute) = 0;
  virtual absl::Status BackwardWeight(const StagePass& pass, device::Stream& compute) = 0;
  // The stage's part of PipelineSchedule::collectives[index].
  virtual absl::Status Collective(int index, device::Stream& compute) = 0;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_STAGE_MODULE_H_
